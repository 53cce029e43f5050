"""Topics with batch queues: a batch is one record, each of its messages has an offset (store format 3.4)."""

from pathlib import Path

import pytest

from broker.talking import Client, batch, play, properties_text, records, send_fields
from penstock.broker import Broker

TOPIC = {"topic": "B", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}


async def create(client: Client, **more: str) -> tuple[int, str | None]:
    fields = {**TOPIC, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", **more}
    answer = await client.call(17, fields)
    return answer.code, answer.remark


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_batch_is_one_record_with_an_offset_for_each_message(tmp_path: Path, flush: str) -> None:
    async def send(client: Client, *bodies: bytes) -> dict[str, str]:
        text = properties_text(UNIQ_KEY=f"K{bodies[0].decode()}", WAIT="true")
        items = batch(*((body, b"KEYS\x01k\x02") for body in bodies))
        answer = await client.call(320, send_fields("B", properties=text, m="true"), items)
        assert answer.code == 0
        return answer.fields

    async def scene(broker: Broker, client: Client) -> None:
        assert (await create(client, attributes="+queue.type=BatchCQ"))[0] == 0
        fields = await send(client, b"0", b"1", b"2")
        assert (fields["queueOffset"], fields["batchUniqId"]) == ("0", "K0")
        assert (await send(client, b"3", b"4"))["queueOffset"] == "3"
        assert (await client.send("B", b"5", properties=properties_text(UNIQ_KEY="K5"))).fields[
            "queueOffset"
        ] == "5"

    async def read(broker: Broker, client: Client) -> None:
        answer = await client.pull("B")
        first, second, third = records(answer)
        assert (answer.fields["maxOffset"], answer.fields["nextBeginOffset"]) == ("6", "6")
        assert (first.queue_offset, second.queue_offset, third.queue_offset) == (0, 3, 5)
        assert first.sys_flag & 0xC0 == 0xC0
        assert (first.properties["INNER_NUM"], second.properties["INNER_BASE"]) == ("3", "3")
        assert first.body == batch(*((body, b"KEYS\x01k\x02") for body in (b"0", b"1", b"2")))
        inside = await client.pull("B", 4)  # in the middle of the second batch: the whole of it comes
        assert [record.queue_offset for record in records(inside)] == [3, 5]
        assert (await client.call(30, {"topic": "B", "queueId": "0"})).fields == {"offset": "6"}

    async def both(broker: Broker, client: Client) -> None:
        await scene(broker, client)
        await read(broker, client)

    play(tmp_path, both, flush=flush)
    play(tmp_path, read, flush=flush)


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ("+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ("-queue.type", "attempt to delete a nonexistent key: queue.type"),
        ("-message.type", "attempt to delete a nonexistent key: message.type"),
        ("+message.type=SOON", "value of message.type is illegal: SOON"),
        ("+queue.type", "attempt to update an unchangeable attribute. key: queue.type"),
    ],
)
def test_the_kind_of_a_topics_queues_is_for_life(tmp_path: Path, attributes: str, remark: str) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert (await create(client))[0] == 0
        assert await create(client, attributes=attributes) == (1, remark)
        topic = broker.topics.find("B")
        assert topic is not None and topic.attributes == {}

    play(tmp_path, scene)


def test_message_types_are_kept_changed_and_taken_away(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for attributes, kept in (
            ("+message.type=DELAY", {"message.type": "DELAY"}),
            ("+message.type=FIFO", {"message.type": "FIFO"}),
            ("-message.type", {}),
        ):
            assert (await create(client, attributes=attributes))[0] == 0
            topic = broker.topics.find("B")
            assert topic is not None and topic.attributes == kept
        assert await create(client, topic="New", attributes="-message.type") == (
            1,
            "only add attribute is supported while creating topic. key: message.type",
        )

    play(tmp_path, scene)
