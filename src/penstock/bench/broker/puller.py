"""Pulls as fast as a broker answers: ``python -m penstock.bench.broker.puller ...``.

It reads frames and looks at their headers only, so that the broker is what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from penstock.remoting import Command, RemotingClient

IN_FLIGHT = 4
BATCH = 32
_WITH_SUBSCRIPTION = 4


async def pull(address: str, topic: str, queues: int, end: int, seconds: float, sql: str) -> dict[str, float]:
    """Messages of the queues, from their beginning to ``end`` and again: taken and passed over, a second."""
    client = RemotingClient({})
    taken = scanned = 0
    until = time.perf_counter() + seconds

    async def run(number: int) -> None:
        nonlocal taken, scanned
        queue, offset = number % queues, 0
        while time.perf_counter() < until:
            fields = {
                "consumerGroup": "bench",
                "topic": topic,
                "queueId": str(queue),
                "queueOffset": str(offset),
                "maxMsgNums": str(BATCH),
                "sysFlag": str(_WITH_SUBSCRIPTION),
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": sql or "*",
                "subVersion": "0",
                "expressionType": "SQL92" if sql else "TAG",
            }
            answer = await client.call(address, Command.request(11, fields), 30)
            if answer.code not in (0, 20):
                raise RuntimeError(f"code {answer.code}: {answer.remark}")
            after = int(answer.fields["nextBeginOffset"])
            scanned += after - offset
            if answer.code == 0:
                taken += count_records(answer.body)
            offset = 0 if after >= end else after

    begin = time.perf_counter()
    await asyncio.gather(*(run(number) for number in range(queues * IN_FLIGHT)))
    spent = time.perf_counter() - begin
    await client.close()
    return {"taken": taken / spent, "scanned": scanned / spent}


def count_records(body: bytes | memoryview) -> int:
    """How many records a body has."""
    at = count = 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4], "big")
        count += 1
    return count


def main() -> None:
    """Arguments: broker, topic, how many queues, messages of each, seconds, perhaps an SQL filter."""
    address, topic, queues, end, seconds, *sql = sys.argv[1:]
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        rates = runner.run(pull(address, topic, int(queues), int(end), float(seconds), *(sql or [""])))
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
