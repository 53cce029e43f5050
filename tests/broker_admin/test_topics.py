"""Topics by an operator's hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from broker_admin.conftest import SMALL, Operator, queue

Operate = Callable[..., None]


def test_created_topic_is_listed_routed_and_on_disk(operate: Operate, tmp_path: Path) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 3, attributes="+message.type=FIFO")
        config = await operator.done(351, topic="T")
        assert (config["readQueueNums"], config["perm"]) == (3, 6)
        assert config["attributes"] == {"message.type": "FIFO"}
        everything = await operator.done(21)
        assert everything["topicConfigTable"]["T"] == config
        saved = json.loads((tmp_path / "store" / "config" / "topics.json").read_text())
        assert saved["topicConfigTable"]["T"]["writeQueueNums"] == 3
        route = await operator.done(105, topic="T")
        assert route["queueDatas"][0]["readQueueNums"] == 3
        names = await operator.done(206)
        assert "T" in names["topicList"]

    operate(scenario)


def test_topics_are_paged_for_newer_tools(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        answer = await operator.ask(21, topicSeq=1, maxTopicNum=2)
        total = int(answer.fields["totalTopicNum"])
        table = json.loads(bytes(answer.body))["topicConfigTable"]
        assert list(table) == sorted(topic.name for topic in operator.broker.topics)[1:3]
        assert total == len(operator.broker.topics)

    operate(scenario)


def test_wrong_topics_are_refused_in_rocketmqs_words(operate: Operate) -> None:
    good = {"defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "false"}

    async def scenario(operator: Operator) -> None:
        illegal = (
            "The specified topic: bad name, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
        assert await operator.refused(17, topic="bad name", **good) == (29, illegal)
        assert await operator.refused(17, topic="../../etc", **good) == (
            29,
            illegal.replace("bad name", "../../etc"),
        )
        system = "The topic[TBW102] is conflict with system topic."
        assert await operator.refused(17, topic="TBW102", **good) == (29, system)
        mixed = await operator.refused(17, topic="M", attributes="+message.type=MIXED", **good)
        assert mixed == (29, "MIXED message type is not supported.")
        unknown = await operator.refused(17, topic="M", attributes="+no.such=1", **good)
        assert unknown == (1, "unsupported key: no.such")
        for change in ({"readQueueNums": -1}, {"writeQueueNums": 70000}, {"perm": 9}, {"readQueueNums": "x"}):
            code, remark = await operator.refused(17, topic="M", **{**good, **change})
            assert code in (1, 29) and remark
        assert "M" not in operator.broker.topics

    operate(scenario)


def test_list_of_topics_is_all_or_nothing(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        good = {"topicName": "A", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        bad = {"topicName": "B", "readQueueNums": "many"}
        body = json.dumps({"topicConfigList": [good, bad]}).encode()
        assert (await operator.refused(18, body))[0] == 29
        assert "A" not in operator.broker.topics
        await operator.done(18, json.dumps({"topicConfigList": [good]}).encode())
        assert "A" in operator.broker.topics
        assert (await operator.refused(18, b"{}"))[0] == 1
        assert (await operator.refused(18, b"\xff"))[0] == 1

    operate(scenario)


def test_topic_stats_have_queues_as_keys(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        await operator.send("T", b"one", 1)
        await operator.send("T", b"two", 1)
        answer = await operator.ask(202, topic="T")
        assert b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{' in bytes(answer.body)
        table = (await operator.done(202, topic="T"))["offsetTable"]
        assert table[queue("T", 0)] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        assert table[queue("T", 1)]["maxOffset"] == 2
        assert table[queue("T", 1)]["lastUpdateTimestamp"] > 1_600_000_000_000
        assert await operator.refused(202, topic="Nope") == (17, "topic[Nope] not exist")

    operate(scenario)


def test_deleted_topic_is_gone_with_its_offsets_and_route(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        await operator.heartbeat("G", "T")
        await operator.done(15, consumerGroup="G", topic="T", queueId=0, commitOffset=5)
        assert (await operator.done(300, topic="T"))["groupList"] == ["G"]
        await operator.done(215, topic="T")
        assert operator.broker.consumer_offsets.offsets("G", "T") == {}
        assert (await operator.refused(351, topic="T"))[0] == 17
        assert (await operator.refused(105, topic="T"))[0] == 17
        await operator.done(215, topic="T")
        assert await operator.refused(215, topic="") == (29, "The specified topic is blank.")
        assert (await operator.refused(215, topic="TBW102"))[0] == 29

    operate(scenario)


def test_system_topics_are_listed(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        names = (await operator.done(305))["topicList"]
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "broker-a"} <= set(names)
        await operator.done(316)

    operate(scenario)


def test_deleted_topic_stays_deleted_after_a_restart_until_it_is_created_again(operate: Operate) -> None:
    async def delete(operator: Operator) -> None:
        await operator.create("T", 1)
        await operator.create("U", 1)
        await operator.send("T", b"one")
        await operator.send("U", b"one")
        await operator.done(202, topic="T")
        await operator.done(215, topic="T")

    async def look(operator: Operator) -> None:
        assert "T" not in operator.broker.topics
        assert "U" in operator.broker.topics
        await operator.create("T", 1)
        assert "T" not in operator.broker.deleted_topics

    async def look_again(operator: Operator) -> None:
        assert "T" in operator.broker.topics

    operate(delete)
    operate(look)
    operate(look_again)


def test_batch_topic_leaves_the_other_topics_in_their_file(operate: Operate, tmp_path: Path) -> None:
    file = tmp_path / "store" / "config" / "topics.json"

    async def scenario(operator: Operator) -> None:
        await operator.create("T", 3)
        await operator.create("B", 1, attributes="+queue.type=BatchCQ")
        table = json.loads(file.read_text())["topicConfigTable"]
        assert table["T"]["readQueueNums"] == 3
        assert table["B"]["readQueueNums"] == 1
        assert table["B"]["attributes"] == {"queue.type": "BatchCQ"}
        # Whatever was written on the way, the file before this one had the first topic too.
        before = json.loads(file.with_name("topics.json.bak").read_text())["topicConfigTable"]
        assert "T" in before and "B" not in before

    async def look(operator: Operator) -> None:
        assert (await operator.done(351, topic="B"))["attributes"] == {"queue.type": "BatchCQ"}
        assert "B" in operator.broker.store._queues.batch_topics

    operate(scenario)
    operate(look)


def test_topic_that_is_created_again_does_not_show_its_old_messages(operate: Operate, tmp_path: Path) -> None:
    file = tmp_path / "store" / "config" / "deletedTopics.json"

    async def fields(operator: Operator) -> tuple[int, int]:
        table = (await operator.done(202, topic="T"))["offsetTable"][queue("T", 0)]
        return table["minOffset"], table["maxOffset"]

    async def again(operator: Operator) -> None:
        await operator.create("T", 1)
        for body in (b"old", b"older"):
            await operator.send("T", body)
        await operator.done(215, topic="T")
        await operator.create("T", 1)
        assert await fields(operator) == (2, 2)
        await operator.send("T", b"new")
        assert await fields(operator) == (2, 3)
        # A new group begins where the topic does, as on any young topic.
        answer = await operator.ask(14, consumerGroup="G", topic="T", queueId=0)
        assert (answer.code, answer.fields["offset"]) == (0, "2")
        operator.broker.store.clean()
        assert await fields(operator) == (2, 3)

    async def look(operator: Operator) -> None:
        assert await fields(operator) == (2, 3)
        await operator.done(215, topic="T")
        await operator.create("T", 1)
        assert await fields(operator) == (3, 3)

    async def shortened(operator: Operator) -> None:
        assert json.loads(file.read_text())["begins"] == {"T": {"0": 3}}
        assert await fields(operator) == (3, 3)
        await operator.send("T", b"newest")
        assert await fields(operator) == (3, 4)

    async def look_again(operator: Operator) -> None:
        assert await fields(operator) == (3, 4)

    operate(again)
    operate(look)
    # As after a crash that cost the end of the log: the place that was noted is behind it.
    file.write_text(file.read_text().replace('"0":3', '"0":1000'))
    assert "1000" in file.read_text()
    operate(shortened)
    operate(look_again)


def test_queue_files_of_a_deleted_topic_go_when_the_log_has_nothing_of_it(
    operate: Operate, tmp_path: Path
) -> None:
    queues = tmp_path / "store" / "consumequeue"
    hours = ";".join(f"{hour:02}" for hour in range(24))
    store = dataclasses.replace(SMALL, file_reserved_time_hours=0, delete_when=hours)

    async def fill(operator: Operator) -> None:
        for _ in range(5):
            await operator.send("U", bytes(300_000))

    async def delete(operator: Operator) -> None:
        await operator.create("T", 2)
        await operator.create("U", 1)
        for number in range(2):
            await operator.send("T", b"old", number)
        await operator.done(202, topic="T")
        await operator.done(215, topic="T")
        await operator.done(316)
        assert (queues / "T").exists()  # its messages are in the log: a recovery would make them again
        await fill(operator)
        await operator.done(329)
        assert operator.broker.store.min_physical_offset > 0
        await operator.done(316)
        assert not (queues / "T").exists()
        assert (queues / "U").exists()
        # Whoever made it again before: numbers go on, nothing is lost.
        await operator.create("T", 2)
        await operator.send("T", b"new", 0)
        table = (await operator.done(202, topic="T"))["offsetTable"]
        assert (table[queue("T", 0)]["minOffset"], table[queue("T", 0)]["maxOffset"]) == (1, 2)
        await operator.done(215, topic="T")
        await fill(operator)
        await operator.done(329)
        await operator.done(316)
        assert not (queues / "T").exists()

    async def create(operator: Operator) -> None:
        assert "T" not in operator.broker.topics
        await operator.create("T", 2)
        await operator.send("T", b"new", 0)
        table = (await operator.done(202, topic="T"))["offsetTable"]
        assert (table[queue("T", 0)]["minOffset"], table[queue("T", 0)]["maxOffset"]) == (0, 1)

    operate(delete, store=store)
    operate(create, store=store)
