"""Our own client as a load, in a process of its own: ``python -m penstock.bench.broker.ownclient ...``."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from penstock.client import Producer, SendResult
from penstock.message import Message

IN_FLIGHT = 1024
BATCH = 64


async def single(namesrv: str, topic: str, size: int, seconds: float) -> float:
    """Messages a second, one request each, a bounded number in flight."""
    body = b"x" * size
    done = 0
    async with Producer("bench", namesrv=namesrv) as producer:
        await producer.send(Message(topic, body))
        room = asyncio.Semaphore(IN_FLIGHT)

        def finished(future: asyncio.Future[SendResult]) -> None:
            nonlocal done
            future.result()
            done += 1
            room.release()

        begin = time.perf_counter()
        end = begin + seconds
        while time.perf_counter() < end:
            await room.acquire()
            sent = producer.send_soon(Message(topic, body, tags="bench", keys="k"))
            sent.add_done_callback(finished)
        for _ in range(IN_FLIGHT):
            await room.acquire()
        return done / (time.perf_counter() - begin)


async def batched(namesrv: str, topic: str, size: int, seconds: float) -> float:
    """Messages a second in batches, some batches in flight."""
    body = b"x" * size
    done = 0
    async with Producer("bench", namesrv=namesrv) as producer:
        await producer.send(Message(topic, body))
        begin = time.perf_counter()
        end = begin + seconds

        async def send() -> None:
            nonlocal done
            while time.perf_counter() < end:
                messages = [Message(topic, body, tags="bench", keys="k") for _ in range(BATCH)]
                results = await producer.send_batch(messages)
                done += len(results)  # not in one with the await: that would add to what `done` was before it

        await asyncio.gather(*(send() for _ in range(8)))
        return done / (time.perf_counter() - begin)


def main() -> None:
    """Arguments: single|batched, name server, topic, size, seconds."""
    kind, namesrv, topic, size, seconds = sys.argv[1:]
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        work = {"single": single, "batched": batched}[kind]
        rate = runner.run(work(namesrv, topic, int(size), float(seconds)))
    print(json.dumps({"rate": rate}))


if __name__ == "__main__":
    main()
