"""For every request code: what it looks like when it reaches for a topic and a group."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.talking import batch, pull_fields, send_fields


class Reach(NamedTuple):
    """Who names these is after them; ``place`` is where a message of the topic lies in the log."""

    topic: str
    group: str
    place: int
    message_id: str


class Case(NamedTuple):
    fields: dict[str, str]
    body: bytes = b""


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _long(reach: Reach) -> dict[str, str]:
    return {
        "producerGroup": "P",
        "topic": reach.topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1794715869048",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


def _topic(reach: Reach, **more: str) -> dict[str, str]:
    return {"topic": reach.topic, "queueId": "0", **more}


def _consumed(reach: Reach, **more: str) -> dict[str, str]:
    return _topic(reach, consumerGroup=reach.group, **more)


def _heartbeat(reach: Reach) -> bytes:
    subscription = {"topic": reach.topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {"groupName": reach.group, "subscriptionDataSet": [subscription]}
    return _json({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []})


def _locks(reach: Reach) -> bytes:
    queue = {"topic": reach.topic, "brokerName": "broker-a", "queueId": 0}
    return _json({"clientId": "c", "consumerGroup": reach.group, "mqSet": [queue]})


def _handle(reach: Reach) -> str:
    return base64.urlsafe_b64encode(f"v1 {reach.topic} broker-a 1794715869048 KEY".encode()).decode()


REACHING: dict[int, Callable[[Reach], Case]] = {
    10: lambda r: Case(_long(r), b"x"),
    310: lambda r: Case(send_fields(r.topic), b"x"),
    320: lambda r: Case(send_fields(r.topic), batch((b"x", b""))),
    324: lambda r: Case(_long(r), b"x"),
    325: lambda r: Case(send_fields(r.topic), b"x"),
    37: lambda r: Case(
        {
            "topic": r.topic,
            "producerGroup": "P",
            "tranStateTableOffset": "0",
            "commitLogOffset": str(r.place),
            "commitOrRollback": "8",
        }
    ),
    370: lambda r: Case({"topic": "Mine", "producerGroup": "P", "recallHandle": _handle(r)}),
    11: lambda r: Case(pull_fields(r.topic, 0, group=r.group, flags=0)),
    361: lambda r: Case(pull_fields(r.topic, 0, group=r.group, flags=0)),
    36: lambda r: Case({"group": "mine", "offset": str(r.place), "delayLevel": "0", "originTopic": "Mine"}),
    14: lambda r: Case(_consumed(r)),
    15: lambda r: Case(_consumed(r, commitOffset="0")),
    34: lambda r: Case({}, _heartbeat(r)),
    35: lambda r: Case({"clientID": "c", "consumerGroup": r.group}),
    38: lambda r: Case({"consumerGroup": r.group}),
    46: lambda r: Case({}, _json({"subscriptionData": {"topic": r.topic}, "group": r.group})),
    41: lambda r: Case({}, _locks(r)),
    42: lambda r: Case({}, _locks(r)),
    200050: lambda r: Case(_consumed(r, maxMsgNums="1", invisibleTime="10000", pollTime="0", bornTime="0")),
    200051: lambda r: Case(_consumed(r, extraInfo="0 0 0 0 0 broker-a 0 0", offset="0")),
    200052: lambda r: Case(_consumed(r, maxMsgNums="1")),
    200053: lambda r: Case(_consumed(r, extraInfo="0 0 0 0 0 broker-a 0 0", offset="0", invisibleTime="1")),
    200054: lambda r: Case(_consumed(r, pollTime="0", bornTime="0")),
    200055: lambda r: Case(_consumed(r)),
    200151: lambda r: Case(
        {}, _json({"brokerName": "broker-a", "acks": [{"c": r.group, "t": r.topic, "q": 0, "b": [1]}]})
    ),
    400: lambda r: Case({}, _json({"topic": r.topic, "consumerGroup": r.group, "clientId": "c"})),
    401: lambda r: Case({}, _json({"topic": r.topic, "consumerGroup": r.group, "mode": "POP"})),
    29: lambda r: Case(_topic(r, timestamp="0")),
    30: lambda r: Case(_topic(r)),
    31: lambda r: Case(_topic(r)),
    32: lambda r: Case(_topic(r)),
    12: lambda r: Case(_topic(r, key="k", maxNum="1", beginTimestamp="0", endTimestamp="9999999999999")),
    33: lambda r: Case({"offset": str(r.place), "topic": "Mine"}),
    321: lambda r: Case(_topic(r, index="0", count="1")),
    17: lambda r: Case(
        _topic(r, defaultTopic="TBW102", readQueueNums="1", writeQueueNums="1", perm="6", order="false")
    ),
    18: lambda r: Case({}, _json({"topicConfigList": [{"topicName": "Mine"}, {"topicName": r.topic}]})),
    215: lambda r: Case({"topic": r.topic}),
    202: lambda r: Case({"topic": r.topic}),
    351: lambda r: Case({"topic": r.topic}),
    300: lambda r: Case({"topic": r.topic}),
    200: lambda r: Case({}, _json({"groupName": r.group})),
    225: lambda r: Case({}, _json({"groupConfigList": [{"groupName": "mine"}, {"groupName": r.group}]})),
    207: lambda r: Case({"groupName": r.group}),
    352: lambda r: Case({"group": r.group}),
    353: lambda r: Case({"group": r.group, "topic": r.topic, "readable": "false"}),
    343: lambda r: Case({"group": r.group}),
    345: lambda r: Case({"group": r.group, "topic": r.topic}),
    203: lambda r: Case({"consumerGroup": r.group}),
    204: lambda r: Case({"producerGroup": "P"}),
    208: lambda r: Case({"consumerGroup": "mine", "topicList": f"Mine;{r.topic}"}),
    303: lambda r: Case({"topic": r.topic, "group": r.group}),
    307: lambda r: Case({"consumerGroup": r.group, "clientId": "c"}),
    223: lambda r: Case({"topic": r.topic, "group": r.group}),
    222: lambda r: Case({"topic": r.topic, "group": r.group, "timestamp": "0", "isForce": "true"}),
    314: lambda r: Case({"srcGroup": r.group, "destGroup": "mine", "topic": r.topic}),
    309: lambda r: Case({"consumerGroup": "mine", "clientId": "c", "msgId": r.message_id}),
    105: lambda r: Case({"topic": r.topic}),
}
"""What names somebody's topic or group."""

OF_ADMINISTRATORS = frozenset(
    {
        *(21, 201, 328, 402, 25, 26, 28, 43, 45, 60, 61, 306, 315, 316, 317, 329, 907, 2003),
        *(3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010),
        *(100, 102, 103, 104, 205, 206, 216, 217, 219, 224, 311, 312, 313, 318, 319, 322, 327, 904),
    }
)
"""What is about everybody's."""

OF_EVERY_ACCOUNT = frozenset({305, 304, 106, 101, 901})
"""What tells nothing about anybody."""
