"""Requests with absurd fields and bodies: always an answer, never a file outside, never an end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from broker_admin.conftest import Operator
from penstock.errors import RemotingError
from penstock.remoting import Command, RequestCode

Operate = Callable[..., None]

NAMES = (
    *("topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis"),
    *("subVersion", "subscription", "expressionType", "consumerGroup", "group", "groupName", "key", "maxNum"),
    *("beginTimestamp", "endTimestamp", "offset", "timestamp", "isForce", "readQueueNums", "writeQueueNums"),
    *("perm", "topicFilterType", "order", "attributes", "defaultTopic", "clientId", "clientID", "msgId"),
    *("producerGroup", "statsName", "statsKey", "index", "count", "srcGroup", "destGroup", "topicList"),
    *("brokerName", "brokerAddr", "clusterName", "brokerId", "namespace", "value", "cluster", "topicSeq"),
    *("maxTopicNum", "groupSeq", "delayLevel", "originMsgId", "originTopic", "maxReconsumeTimes"),
    *("tranStateTableOffset", "commitLogOffset", "commitOrRollback", "transactionId", "boundaryType"),
    *("bodyCrc32", "heartbeatTimeoutMillis", "cleanOffset", "indexType", "_UNIQUE_KEY_QUERY", "isOrder"),
    *"abcdefghijklmn",
)
VALUES = (
    *(
        "",
        "x",
        "-1",
        "0",
        "1",
        "7",
        "2147483647",
        "-2147483648",
        "9223372036854775807",
        "9" * 40,
        "1e9",
        "NaN",
    ),
    *(
        "../../escaped",
        "/etc/passwd",
        "a/b",
        ".",
        "..",
        "\x00",
        "T\n",
        "%RETRY%G",
        "%DLQ%G",
        "T",
        "G",
        "TBW102",
    ),
    *(
        "true",
        "FALSE",
        "null",
        "{}",
        "x" * 5000,
        "\U0001f980",
        "SINGLE_TAG",
        "*",
        "a || b",
        "7F00000100002A9F",
    ),
    *("KEYS\x01a\x02", "\x01\x02\x01\x02", "+message.type=FIFO", "-x", "SCHEDULE_TOPIC_XXXX"),
)
BODIES = (
    *(b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b"x" * 300, b'{"groupName":"../../escaped"}'),
    *(b'{"topicConfigList":[{"topicName":"../../escaped"}]}', b'{"clientID":"c","consumerDataSet":[{}]}'),
    *(b'{"clientId":"c","consumerGroup":"G","mqSet":[{"topic":"../x","queueId":-5}]}', b"[" * 500),
    *(b'{"clientID":"c","producerDataSet":[{"groupName":"../escaped"}]}', b"a=b\nlongPollingEnable=\n"),
    *(b"\x00\x00\x00\x10" * 8, b"\x7f\xff\xff\xff" * 4),
)
HOLDS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


def test_every_request_is_answered_whatever_it_says(operate: Operate, tmp_path: Path) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 2)
        await operator.heartbeat("G", "T")
        outside = {path.name for path in tmp_path.iterdir()}
        choose = random.Random(20)
        answers = 0
        for code in sorted(operator.broker.handlers):
            for _ in range(25):
                fields = {
                    name: choose.choice(VALUES) for name in choose.sample(NAMES, choose.randrange(len(NAMES)))
                }
                if code in HOLDS:
                    fields["sysFlag"] = "0"
                command = Command.request(code, fields, choose.choice(BODIES))
                try:
                    answer = await operator.client.call(operator.broker.address, command, 10)
                except RemotingError as error:
                    raise AssertionError(f"no answer to {command} {command.body!r}: {error}") from None
                assert isinstance(answer.code, int)
                answers += 1
        assert answers > 1000
        # Nothing was made beside the store, and no folder of a queue has a name that is none.
        assert {path.name for path in tmp_path.iterdir()} == outside
        assert not list(tmp_path.rglob("*escaped*"))
        queues = tmp_path / "store" / "consumequeue"
        if queues.exists():
            assert all("/" not in path.name and path.name not in (".", "..") for path in queues.iterdir())
        # And it works on.
        await operator.create("After", 1)
        await operator.send("After", b"still here")

    operate(scenario, seconds=120)
