"""Messages found by key, unique key and place; queue units."""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.conftest import Operator

Operate = Callable[..., None]
FOREVER = 2**63 - 1


def test_message_is_found_by_key_unique_key_and_place(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        sent = await operator.send("T", b"find me", 0, "KEYS\x01k1 k2\x02UNIQ_KEY\x01ABC\x02TAGS\x01TagA\x02")
        await operator.send("T", b"second", 1, "KEYS\x01k1\x02UNIQ_KEY\x01DEF\x02")
        span = {"beginTimestamp": 0, "endTimestamp": FOREVER}
        both = await operator.ask(12, topic="T", key="k1", maxNum=10, _UNIQUE_KEY_QUERY="false", **span)
        assert both.code == 0
        records = bytes(both.body)
        first = int.from_bytes(records[:4], "big")
        assert b"find me" in records[:first] and b"second" in records[first:]
        assert int(both.fields["indexLastUpdatePhyoffset"]) > 0
        one = await operator.ask(
            12, topic="T", key="ABC", maxNum=0, indexType="U", _UNIQUE_KEY_QUERY="true", **span
        )
        assert bytes(one.body) == records[:first]
        place = int(sent.fields["msgId"][-16:], 16)
        found = await operator.ask(33, offset=place, topic="T")
        assert bytes(found.body) == records[:first]

    operate(scenario)


def test_what_is_not_there_is_answered_as_rocketmq_does(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        await operator.send("T", b"one", 0, "KEYS\x01k1\x02")
        span = {"beginTimestamp": 0, "endTimestamp": 9_000_000_000_000}
        for key, limit in (("zzz", 3), ("k1", 0), ("k1", -5)):
            answer = await operator.ask(12, topic="T", key=key, maxNum=limit, **span)
            assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")
            assert answer.fields == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
        for place in (999999999999, 1, -1, -(2**63), 2**63 - 1):
            expected = (1, f"can not find message by the offset, {place}")
            assert await operator.refused(33, offset=place) == expected
        assert (await operator.refused(33, offset="x"))[0] == 1
        assert (await operator.refused(33))[0] == 1
        assert (await operator.refused(12, topic="T"))[0] == 1

    operate(scenario)


def test_queue_units_are_shown(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        for number in range(3):
            await operator.send("T", b"%d" % number, 0, "TAGS\x01TagA\x02")
        found = await operator.done(321, topic="T", queueId=0, index=1, count=5)
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
        assert [unit["tagsCode"] for unit in found["queueData"]] == [2598919, 2598919]
        assert (await operator.done(321, topic="T", queueId=7, index=0, count=5))["queueData"] == []
        huge = await operator.done(321, topic="T", queueId=0, index=-(2**63), count=2**31 - 1)
        assert len(huge["queueData"]) == 3

    operate(scenario)
