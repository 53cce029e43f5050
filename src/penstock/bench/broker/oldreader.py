"""A reader of old messages, in a process of its own: ``python -m ...oldreader NAMESRV TOPIC``.

It throws away what it gets: the broker's disk is to be busy, not this process.
"""

from __future__ import annotations

import asyncio
import json
import sys

from penstock.remoting import Command, RemotingClient, RequestCode

_QUEUES = 8
_BATCH = 32


async def read(namesrv: str, topic: str) -> None:
    """Pull every queue from offset 0 to its end, over and over, until killed."""
    client = RemotingClient()
    route = await client.call(
        namesrv, Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}), 5
    )
    place = json.loads(bytes(route.body))
    address = place["brokerDatas"][0]["brokerAddrs"]["0"]
    queues = place["queueDatas"][0]["readQueueNums"]
    first = True
    while True:
        for queue in range(min(queues, _QUEUES)):
            offset = 0
            while True:
                answer = await client.call(address, _pull(topic, queue, offset), 30)
                if answer.code != 0:
                    break
                offset = int(answer.fields["nextBeginOffset"])
                if first:
                    first = False
                    print("reading", flush=True)


def _pull(topic: str, queue: int, offset: int) -> Command:
    fields = {
        "consumerGroup": "old-reader",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": str(_BATCH),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return Command.request(RequestCode.PULL_MESSAGE, fields)


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], sys.argv[2]))
