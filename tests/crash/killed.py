"""A process that writes into a store as fast as it can until it is killed, and tells each ack through a pipe.

Run with ``python -m crash.killed PATH RUN KIND FLUSH POOL``; the first line says that it begins to open the
store, the
second that it is open, each further one is an ack: writer, number, topic, queue, queue offset, physical
offset.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

from penstock import Message, StoreConfig, open_store

KINDS = ("put", "put_many", "put_async", "threads", "open")
WRITERS = 4
BATCH = 8
IN_FLIGHT = 16


def small_files(flush: str, *, pool: bool = False) -> StoreConfig:
    """Files so small that a fraction of a second rolls each kind of them."""
    return StoreConfig(
        flush_disk_type=flush,
        mapped_file_size_commit_log=128 << 10,
        mapped_file_size_consume_queue=20 * 200,
        max_hash_slot_num=200,
        max_index_num=500,
        transient_store_pool_enable=pool,
        flush_interval_consume_queue_ms=10,
        flush_consume_queue_thorough_interval_ms=50,
    )


def body_of(run: int, writer: int, number: int) -> bytes:
    """What a message says: different for each, and known to whoever knows its number."""
    name = b"%d.%d.%d|" % (run, writer, number)
    return name * (1 + number * 7919 % 2500 // len(name))


def key_of(run: int, writer: int, number: int) -> str:
    return f"key-{run}-{writer}-{number}"


def message_of(run: int, writer: int, number: int) -> Message:
    return Message(
        f"topic{number % 3}",
        body_of(run, writer, number),
        tags="tag",
        keys=key_of(run, writer, number),
        queue_id=(number + writer) % 2,
    )


def say(line: str) -> None:
    """One write: short ones into a pipe are whole or not there."""
    os.write(1, line.encode() + b"\n")


def ack(writer: int, number: int, result: Any) -> None:
    if result.ok:
        say(
            f"{writer} {number} {result.topic} {result.queue_id}"
            f" {result.queue_offset} {result.physical_offset}"
        )


def put(store: Any, run: int, writer: int) -> None:
    number = 0
    while True:
        ack(writer, number, store.put(message_of(run, writer, number)))
        number += 1


def put_many(store: Any, run: int, writer: int) -> None:
    number = 0
    while True:
        results = store.put_many([message_of(run, writer, number + i) for i in range(BATCH)])
        for i, result in enumerate(results):
            ack(writer, number + i, result)
        number += BATCH


def put_async(store: Any, run: int, writer: int) -> None:
    async def one(worker: int) -> None:
        number = 0
        while True:
            ack(worker, number, await store.put_async(message_of(run, worker, number)))
            number += 1
            await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*(one(worker) for worker in range(IN_FLIGHT)))

    asyncio.run(all_of_them())


def threads(store: Any, run: int, writer: int) -> None:
    others = [
        threading.Thread(target=put, args=(store, run, other), daemon=True) for other in range(1, WRITERS)
    ]
    for other in others:
        other.start()
    put(store, run, writer)


def main(path: str, run: str, kind: str, flush: str, pool: str) -> None:
    say("opening")
    store = open_store(path, config=small_files(flush, pool=pool == "pool"))
    say("open")
    if kind == "open":
        threading.Event().wait()
    {"put": put, "put_many": put_many, "put_async": put_async, "threads": threads}[kind](store, int(run), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
