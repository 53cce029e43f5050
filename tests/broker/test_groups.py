"""Groups: heartbeats, who is told, locks, send-back and dead letters (protocol sections 4.4 and 7)."""

import json
from pathlib import Path

import pytest

from broker.talking import Client, play, properties_text, records, send_fields, until
from penstock.broker import Broker
from penstock.store.jsonfile import load_json


def consumer_ids(body: bytes | memoryview) -> list[str]:
    return sorted(json.loads(bytes(body))["consumerIdList"])


def test_members_are_told_when_one_joins_and_when_one_leaves(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        answer = await client.heartbeat("G", "T", client="one")
        assert answer.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        first = await client.next_push()
        assert (first.code, first.fields, first.is_oneway) == (40, {"consumerGroup": "G"}, True)
        await client.heartbeat("G", "T", client="one")
        assert client.pushed.empty()
        other = Client(broker.address)
        await other.heartbeat("G", "T", client="two")
        assert (await client.next_push()).code == (await other.next_push()).code == 40
        answer = await client.call(38, {"consumerGroup": "G"})
        assert consumer_ids(answer.body) == ["one", "two"]
        await other.close()
        assert (await client.next_push()).fields == {"consumerGroup": "G"}
        assert consumer_ids((await client.call(38, {"consumerGroup": "G"})).body) == ["one"]
        await client.call(35, {"clientID": "one", "consumerGroup": "G"})
        answer = await client.call(38, {"consumerGroup": "G"})
        assert (answer.code, answer.remark) == (1, "no consumer for this group, G")

    play(tmp_path, scene)


def test_a_registered_group_pulls_by_what_it_subscribed_to(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for tag in ("A", "B"):
            await client.send("T", tag.encode(), properties=properties_text(TAGS=tag))
        await client.heartbeat("G", "T", tags="B")
        answer = await client.pull("T", flags=2, tags="ignored")
        assert [record.body for record in records(answer)] == [b"B"]
        answer = await client.pull("TBW102", flags=2)
        assert answer.code == 24
        assert answer.remark is not None and answer.remark.startswith("the consumer's subscription not exist")

    play(tmp_path, scene)


def test_a_pull_with_a_newer_version_than_the_heartbeats_is_served(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"x")
        await client.heartbeat("G", "T", version=5)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
        rest = {"sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "10", "subVersion": "9"}
        answer = await client.call(11, {**fields, **rest})
        assert [record.body for record in records(answer)] == [b"x"]

    play(tmp_path, scene)


def test_topics_that_a_heartbeat_leaves_out_are_not_subscribed_any_more(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        await client.send("U")
        await client.heartbeat("G", "T")
        await client.next_push()
        await client.heartbeat("G", "U", version=2)
        await client.next_push()
        group = broker.consumers.find("G")
        assert group is not None and sorted(group.subscriptions) == ["%RETRY%G", "U"]

    play(tmp_path, scene)


def test_short_heartbeats_keep_the_subscriptions(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        answer = await client.heartbeat("G", "T", heartbeatFingerprint=7)
        assert answer.fields["IS_SUB_CHANGE"] == "false"
        short = {
            "clientID": "c1",
            "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}],
            "heartbeatFingerprint": 7,
            "withoutSub": True,
        }
        answer = await client.call(34, body=json.dumps(short).encode())
        assert answer.fields["IS_SUB_CHANGE"] == "false"
        group = broker.consumers.find("G")
        assert group is not None and sorted(group.subscriptions) == ["%RETRY%G", "T"]
        answer = await client.heartbeat("G", "T", version=2, heartbeatFingerprint=8)
        assert answer.fields["IS_SUB_CHANGE"] == "true"

    play(tmp_path, scene)


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"clientID": 5}'])
def test_a_heartbeat_that_is_none_is_answered_with_an_error(tmp_path: Path, body: bytes) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert (await client.call(34, body=body)).code == 1
        assert (await client.heartbeat("G", "T")).code == 0

    play(tmp_path, scene)


def test_broadcasting_members_are_not_told_of_each_other(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.heartbeat("G", "T", model="BROADCASTING")
        other = Client(broker.address)
        await other.heartbeat("G", "T", client="c2", model="BROADCASTING")
        await other.close()
        await until(lambda: len(getattr(broker.consumers.find("G"), "members", ())) == 1)
        assert client.pushed.empty()

    play(tmp_path, scene)


def test_silent_clients_are_dropped(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.heartbeat("G", "T", producers=("P",))
        assert broker.consumers.expire(1000) == broker.producers.expire(1000) == []
        assert len(broker.consumers.expire(-1)) == len(broker.producers.expire(-1)) == 1
        assert broker.consumers.find("G") is None

    play(tmp_path, scene)


def lock_body(client: str, *queues: int) -> bytes:
    listed = [{"brokerName": "broker-a", "queueId": queue, "topic": "T"} for queue in queues]
    return json.dumps({"clientId": client, "consumerGroup": "G", "mqSet": listed}).encode()


def locked(body: bytes | memoryview) -> list[int]:
    return [queue["queueId"] for queue in json.loads(bytes(body))["lockOKMQSet"]]


def test_a_queue_has_one_owner_until_it_is_given_back(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert locked((await client.call(41, body=lock_body("x", 0))).body) == [0]
        assert locked((await client.call(41, body=lock_body("y", 0, 1))).body) == [1]
        assert (await client.call(42, body=lock_body("y", 0))).code == 0
        assert locked((await client.call(41, body=lock_body("y", 0))).body) == []
        await client.call(42, body=lock_body("x", 0))
        assert locked((await client.call(41, body=lock_body("y", 0))).body) == [0]

    play(tmp_path, scene)


def back_fields(offset: int, *, level: int = 0, most: int = 16, group: str = "G") -> dict[str, str]:
    return {
        "offset": str(offset),
        "group": group,
        "delayLevel": str(level),
        "originMsgId": "x",
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": str(most),
    }


def test_a_message_sent_back_comes_again_and_then_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.heartbeat("G", "T")
        await client.send("T", b"poison", properties=properties_text(UNIQ_KEY="U", TAGS="A"))
        (record,) = records(await client.pull("T", flags=2))
        answer = await client.call(36, back_fields(record.physical_offset, level=1, most=1))
        assert (answer.code, answer.remark) == (0, None)
        (again,) = records(await client.pull("%RETRY%G", flags=2))
        assert again.reconsume_times == 1
        wanted = {
            "RETRY_TOPIC": "T",
            "WAIT": "false",
            "DELAY": "1",
            "REAL_TOPIC": "%RETRY%G",
            "UNIQ_KEY": "U",
        }
        assert wanted.items() <= again.properties.items()
        assert (await client.call(36, back_fields(again.physical_offset, most=1))).code == 0
        (dead,) = records(await client.pull("%DLQ%G", flags=6))
        assert (dead.body, dead.reconsume_times) == (b"poison", 2)
        assert dead.properties["RETRY_TOPIC"] == "T"

    play(tmp_path, scene)


def test_send_back_is_refused_in_rocketmqs_words(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        answer = await client.call(36, back_fields(123456789012))
        assert (answer.code, answer.remark) == (1, "look message by offset failed, 123456789012")
        answer = await client.call(36, back_fields(0, group="bad group!"))
        assert answer.code == 26

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("times", "locks", "topic"), [(0, False, "%RETRY%G"), (3, False, "%DLQ%G"), (1, True, "%DLQ%G")]
)
def test_a_consumers_own_retry_ends_where_its_tries_are_used_up(
    tmp_path: Path, times: int, locks: bool, topic: str
) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        if locks:
            await client.call(41, body=lock_body("x", 0))
        fields = send_fields("%RETRY%G", j=str(times), l="2")
        answer = await client.call(310, fields, b"tried", version=513)
        assert (answer.code, answer.fields["queueId"]) == (0, "0")
        (record,) = records(await client.pull(topic, flags=6))
        assert record.body == b"tried"

    play(tmp_path, scene)


def test_groups_and_topics_are_written_as_rocketmq_writes_them(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.heartbeat("G", "T")

    play(tmp_path, scene)
    from penstock.files.disk import DiskStorage

    folder = tmp_path / "store" / "config"
    groups = load_json(DiskStorage(), str(folder / "subscriptionGroup.json"))["subscriptionGroupTable"]
    assert groups["G"]["retryMaxTimes"] == 16
    assert groups["G"]["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    topics = load_json(DiskStorage(), str(folder / "topics.json"))["topicConfigTable"]
    assert topics["%RETRY%G"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 1,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "%RETRY%G",
        "topicSysFlag": 0,
        "writeQueueNums": 1,
    }
    assert topics["TBW102"]["perm"] == 7


def test_a_reply_reaches_the_client_that_asked(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        asker = Client(broker.address)
        asker.replies = lambda command: command.answer(0)
        await asker.heartbeat("", "", client="asker", producers=("P",))
        text = properties_text(MSG_TYPE="reply", REPLY_TO_CLIENT="asker", CORRELATION_ID="c1", UNIQ_KEY="U")
        fields = send_fields("DefaultCluster_REPLY_TOPIC", properties=text)
        answer = await client.call(325, fields, b"answer")
        assert (answer.code, answer.remark) == (0, None)
        assert answer.fields["queueOffset"] == "0"
        assert "transactionId" not in answer.fields
        push = await asker.next_push()
        assert (push.code, bytes(push.body)) == (326, b"answer")
        assert "CORRELATION_ID\x01c1\x02" in push.fields["properties"]
        assert push.fields["topic"] == "DefaultCluster_REPLY_TOPIC"
        await asker.close()
        await until(lambda: broker.producers.client("asker") is None)
        answer = await client.call(325, fields, b"late")
        assert (answer.code, answer.remark) == (
            1,
            "push reply message fail, channel of <asker> not found.",
        )
        answer = await client.call(325, send_fields("DefaultCluster_REPLY_TOPIC"), b"r")
        assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
        stored = records(await client.pull("DefaultCluster_REPLY_TOPIC", flags=6))
        assert [record.body for record in stored] == [b"answer", b"late", b"r"]

    play(tmp_path, scene)


def test_a_reply_with_the_long_header_is_a_reply_too(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        fields = {
            "producerGroup": "P",
            "topic": "DefaultCluster_REPLY_TOPIC",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "reconsumeTimes": "0",
            "properties": properties_text(REPLY_TO_CLIENT="gone"),
        }
        answer = await client.call(324, fields, b"answer")
        assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <gone> not found.")
        (stored,) = records(await client.pull("DefaultCluster_REPLY_TOPIC", flags=6))
        assert stored.body == b"answer"

    play(tmp_path, scene)


def test_a_subscription_by_tags_is_found_good(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        config = (
            b'{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"A || B",'
            b'"expressionType":"TAG"}}'
        )
        assert (await client.call(46, {}, config)).code == 0
        answer = await client.call(46, {}, config.replace(b'"TAG"', b'"POETRY"'))
        assert answer.code == 23 and answer.remark

    play(tmp_path, scene)


def test_half_messages_are_seen_only_when_committed(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"plain")

        async def half(name: str) -> dict[str, str]:
            text = properties_text(TRAN_MSG="true", PGROUP="P", UNIQ_KEY=name)
            answer = await client.send("T", name.encode(), properties=text, f="4")
            assert answer.fields["transactionId"] == name
            return {
                "producerGroup": "P",
                "tranStateTableOffset": answer.fields["queueOffset"],
                "msgId": name,
                "commitLogOffset": str(int(answer.fields["msgId"][16:], 16)),
            }

        kept, dropped = await half("kept"), await half("dropped")
        still_open = broker.transactions.need().ops.metrics
        assert still_open.counts == {"T": 2}
        assert len(records(await client.pull("T"))) == 1
        assert (await client.call(37, {**kept, "commitOrRollback": "8"})).code == 0
        assert (await client.call(37, {**dropped, "commitOrRollback": "12"})).code == 0
        assert still_open.counts == {"T": 0}
        found = records(await client.pull("T"))
        assert [record.body for record in found] == [b"plain", b"kept"]
        assert found[1].sys_flag & 0xC == 8
        assert found[1].prepared_transaction_offset == int(kept["commitLogOffset"])
        assert "REAL_TOPIC" not in found[1].properties
        for change, remark in (
            ({"commitLogOffset": "99999999"}, "Find prepared transaction message failed"),
            ({"producerGroup": "Q"}, "The producer group wrong"),
            ({"tranStateTableOffset": "77"}, "The transaction state table offset wrong"),
        ):
            answer = await client.call(37, {**kept, "commitOrRollback": "8", **change})
            assert (answer.code, answer.remark) == (1, remark)

    play(tmp_path, scene)


def test_the_producer_of_an_open_half_message_is_asked(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.heartbeat("", "", client="p1", producers=("P",))
        text = properties_text(TRAN_MSG="true", PGROUP="P", UNIQ_KEY="U")
        fields = send_fields("T", properties=text, f="4", g="1000")
        answer = await client.call(310, fields, b"open")
        assert answer.code == 0
        check = await client.next_push()
        assert (check.code, check.is_oneway) == (39, True)
        assert check.fields["msgId"] == check.fields["transactionId"] == "U"
        assert check.fields["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"
        (record,) = records(check)
        assert (record.topic, record.body, record.queue_id) == ("T", b"open", 0)
        assert record.properties["PGROUP"] == "P"
        assert record.properties["TRANSACTION_CHECK_TIMES"] == "1"
        verdict = {
            **{name: check.fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")},
            "producerGroup": "P",
            "commitOrRollback": "8",
            "fromTransactionCheck": "true",
        }
        await client.oneway(37, verdict)
        answer = await client.pull("T", flags=6)
        assert [each.body for each in records(answer)] == [b"open"]

    play(
        tmp_path,
        scene,
        store={
            "transaction_check_interval_ms": 50,
            "transaction_time_out_ms": 0,
            "file_reserved_time_hours": 24 * 365 * 90,
        },
    )
