"""Producers: what is stored, what is refused, and in which words (protocol section 4)."""

import asyncio
import base64
from pathlib import Path

import pytest

from broker.talking import Client, batch, play, properties_text, records, send_fields
from penstock.broker import Broker


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_sent_message_is_pulled_as_it_was_sent(tmp_path: Path, flush: str) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        text = properties_text(KEYS="k1", UNIQ_KEY="0A0000", WAIT="true", TAGS="TagA")
        sent = await client.send("T", b"first", queue=2, properties=text)
        assert sent.code == 0
        assert sent.remark is None
        assert sent.fields == {
            "msgId": sent.fields["msgId"],
            "queueId": "2",
            "queueOffset": "0",
            "transactionId": "0A0000",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        assert len(sent.fields["msgId"]) == 32
        answer = await client.pull("T", queue=2)
        (record,) = records(answer)
        assert (answer.code, answer.remark, record.body) == (0, "FOUND", b"first")
        assert record.properties == {
            "KEYS": "k1",
            "UNIQ_KEY": "0A0000",
            "WAIT": "true",
            "TAGS": "TagA",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }
        assert record.born_timestamp == 1794715869048
        assert record.store_host == broker.address
        assert record.born_host.startswith("127.0.0.1:")

    play(tmp_path, scene, flush=flush)


def test_a_new_topic_takes_after_its_template_and_survives_a_restart(tmp_path: Path) -> None:
    async def first(broker: Broker, client: Client) -> None:
        assert (await client.send("New", d="3")).code == 0
        topic = broker.topics.find("New")
        assert topic is not None and (topic.read_queue_nums, topic.perm) == (3, 6)

    async def second(broker: Broker, client: Client) -> None:
        topic = broker.topics.find("New")
        assert topic is not None and (topic.write_queue_nums, topic.perm) == (3, 6)

    play(tmp_path, first)
    play(tmp_path, second)


def test_an_unknown_topic_is_refused_where_none_may_be_made(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        answer = await client.send("Nope")
        assert answer.code == 17
        assert answer.remark is not None and answer.remark.startswith("topic[Nope] not exist, apply first")
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}

    play(tmp_path, scene, auto_create_topic_enable=False)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"b": "bad topic!"}, 29, "The specified topic: bad topic!, contains illegal characters"),
        ({"b": ""}, 29, "The specified topic is blank."),
        (
            {"b": "x" * 130},
            29,
            "The specified topic: " + "x" * 130 + ", is longer than topic max length: 127",
        ),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "Sending message to topic[RMQ_SYS_TRANS_HALF_TOPIC] is"),
        ({"b": "../../etc"}, 29, "The specified topic: ../../etc, contains illegal characters"),
        ({"e": "9"}, 29, "request queueId[9] is illegal, TopicConfig [topicName=T, readQueueNums=4, writeQu"),
    ],
)
def test_a_wrong_send_is_refused_in_rocketmqs_words(
    tmp_path: Path, fields: dict[str, str], code: int, remark: str
) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert (await client.send("T")).code == 0
        answer = await client.call(310, {**send_fields("T"), **fields}, b"x")
        assert answer.code == code
        assert answer.remark is not None and answer.remark.startswith(remark)
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}

    play(tmp_path, scene)


@pytest.mark.parametrize("change", [{"e": "abc"}, {"g": None}, {"h": "1_0"}, {"f": "99999999999"}])
def test_a_header_with_absurd_or_missing_fields_gets_an_answer(
    tmp_path: Path, change: dict[str, str | None]
) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        given = {**send_fields("T"), **change}
        answer = await client.call(
            310, {name: value for name, value in given.items() if value is not None}, b"x"
        )
        assert answer.code == 1
        assert answer.remark
        assert (await client.send("T")).code == 0

    play(tmp_path, scene)


def test_a_message_without_a_body_is_refused(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert (await client.send("T", b"")).code == 1

    play(tmp_path, scene)


def test_the_long_header_means_the_same(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        fields = {
            "producerGroup": "P",
            "topic": "T",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "1",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "7",
            "reconsumeTimes": "0",
            "properties": properties_text(TAGS="V1"),
            "unitMode": "false",
            "batch": "false",
        }
        answer = await client.call(10, fields, b"v1")
        assert (answer.code, answer.fields["queueId"]) == (0, "1")
        (record,) = records(await client.pull("T", queue=1))
        assert (record.flag, record.properties["TAGS"]) == (7, "V1")
        assert record.properties["UNIQ_KEY"] == answer.fields["transactionId"]

    play(tmp_path, scene)


def test_a_negative_queue_lets_the_broker_choose(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        answer = await client.send("T", queue=-1)
        assert answer.code == 0
        assert 0 <= int(answer.fields["queueId"]) < 4

    play(tmp_path, scene)


def test_properties_that_read_back_differently_are_put_right(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        text = "UNIQ_KEY\x01MYKEY\x02A\x01\x02B\x01b\x02POP_CK\x01forged\x02TRACE_ON\x01no\x02C\x01c"
        answer = await client.send("T", properties=text)
        assert answer.fields["transactionId"] == "MYKEY"
        (record,) = records(await client.pull("T"))
        own = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
        assert record.properties == {"UNIQ_KEY": "MYKEY", "B": "b", "C": "c", **own}

    play(tmp_path, scene)


def test_what_is_too_large_is_illegal_and_the_connection_lives_on(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        for body, properties in ((b"x" * (1 << 20), ""), (b"x", properties_text(big="y" * 33_000))):
            answer = await client.send("T", body + b"x", properties=properties)
            assert answer.code == 13
            assert answer.remark == (
                "the message is illegal, maybe msg body or properties length not matched. msg body length "
                "limit 1048576B, msg properties length limit 32KB."
            )
            assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert (await client.send("T", b"x" * (1 << 20))).code == 0

    play(tmp_path, scene, store={"max_message_size": 1 << 20})


def test_a_batch_becomes_one_record_a_message(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        body = batch(
            (b"one", b"KEYS\x01a\x02UNIQ_KEY\x01U1\x02"), (b"two", b""), (b"three", b"TAGS\x01t\x02")
        )
        fields = send_fields("T", properties=properties_text(UNIQ_KEY="BATCH", WAIT="true"), m="true")
        answer = await client.call(320, fields, body)
        assert answer.code == 0
        assert answer.fields["queueOffset"] == "0"
        assert answer.fields["transactionId"] == "BATCH"
        ids = answer.fields["msgId"].split(",")
        assert len(ids) == len(set(ids)) == 3
        found = records(await client.pull("T"))
        assert [(each.body, each.queue_offset) for each in found] == [(b"one", 0), (b"two", 1), (b"three", 2)]
        assert found[0].properties == {"KEYS": "a", "UNIQ_KEY": "U1"}
        assert found[1].properties_bytes == b""

    play(tmp_path, scene)


def test_later_batches_are_taken_and_refused_as_the_first_is(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        def fields(**more: str) -> dict[str, str]:
            return send_fields("T", properties=properties_text(WAIT="true"), m="true", **more)

        body = batch((b"one", b""), (b"two", b""))
        first, second = [(await client.call(320, fields(), body)).fields for _ in range(2)]
        assert set(first) == {"MSG_REGION", "TRACE_ON", "msgId", "queueId", "queueOffset"}
        assert second == {**first, "msgId": second["msgId"], "queueOffset": "2"}
        assert len({*first["msgId"].split(","), *second["msgId"].split(",")}) == 4
        assert (await client.call(320, fields(), b"")).code == 1
        assert (await client.call(320, fields(e="99"), body)).code == 29
        assert (await client.call(320, fields(f="4"), body)).code == 13  # of a transaction
        assert [each.body for each in records(await client.pull("T"))] == [b"one", b"two"] * 2

    play(tmp_path, scene)


@pytest.mark.parametrize("body", [b"junk", batch((b"one", b""))[:-1], b"\xff" * 40])
def test_a_damaged_batch_is_refused_and_nothing_of_it_stored(tmp_path: Path, body: bytes) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        answer = await client.call(320, send_fields("T", m="true"), body)
        assert answer.code == 1
        assert len(records(await client.pull("T"))) == 1

    play(tmp_path, scene)


def test_one_way_sends_are_stored_and_never_answered(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        await client.oneway(310, send_fields("T"), b"quiet")
        while len(found := records(await client.pull("T", flags=6, offset=1, hold_ms=5000))) == 0:
            pass
        assert found[0].body == b"quiet"

    play(tmp_path, scene)


def test_a_delayed_message_waits_its_level(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"plain")
        sent = await client.send("T", b"later", properties=properties_text(DELAY="1"))
        assert sent.fields["queueId"] == "0"
        assert len(records(await client.pull("T"))) == 1
        (record,) = records(await client.pull("T", offset=1, flags=6, hold_ms=15_000))
        assert record.body == b"later"
        assert record.properties["REAL_TOPIC"] == "T"

    play(tmp_path, scene)


def test_messages_sent_while_their_topic_is_made_keep_their_order(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.heartbeat("G", "T")  # connected: what is sent now leaves in this order
        bodies = [str(number).encode() for number in range(60)]
        sends = []
        for body in bodies:
            sends.append(asyncio.create_task(client.send("T", body)))
            await asyncio.sleep(0)
        assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
        found = records(await client.pull("T")) + records(await client.pull("T", 32))
        assert [record.body for record in found] == bodies

    play(tmp_path, scene)


def test_a_message_that_claims_to_be_an_inner_batch_is_refused(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        await client.send("T")
        assert (await client.send("T", properties=properties_text(UNIQ_KEY="U"), f="192")).code == 13

    play(tmp_path, scene)


def test_a_timed_message_comes_when_it_is_due_and_cannot_be_taken_back(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T", b"plain")
        sent = await client.send(
            "T", b"later", properties=properties_text(UNIQ_KEY="U", TIMER_DELAY_MS="1500")
        )
        assert (sent.code, sent.fields["queueId"]) == (0, "0")
        handle = base64.urlsafe_b64decode(sent.fields["recallHandle"]).decode().split(" ")
        assert handle[:3] + handle[4:] == ["v1", "T", "broker-a", "U"]
        (record,) = records(await client.pull("T", offset=1, flags=6, hold_ms=15_000))
        assert (record.body, record.properties["REAL_TOPIC"]) == (b"later", "T")
        past = await client.send("T", properties=properties_text(UNIQ_KEY="V", TIMER_DELIVER_MS="1000"))
        assert (past.fields["queueOffset"], "recallHandle" in past.fields) == ("2", False)
        late = str(record.store_timestamp + 4 * 86_400_000)
        far = await client.send("T", properties=properties_text(UNIQ_KEY="W", TIMER_DELIVER_MS=late))
        assert far.code == 13
        assert far.remark is not None and far.remark.startswith(
            "timer message illegal, the delay time should"
        )
        answer = await client.call(370, {"topic": "T", "recallHandle": sent.fields["recallHandle"]})
        assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")

    play(tmp_path, scene)
