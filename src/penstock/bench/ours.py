"""Penstock's side of ``penstock bench store``: the works of the Java ``StorePeer``, command for command.

Runs as a child process (``python -m penstock.bench.ours``), a fresh one for each measurement.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import uvloop

from penstock import open_store
from penstock.bench.child import Child, python_environment
from penstock.bench.machine import rss_anon
from penstock.bench.work import Work
from penstock.config import load_config
from penstock.message import Message

Answer = dict[str, Any]

_REBUILT = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "checkpoint")
_VISIBLE_TIMEOUT = 60.0
READ_COLUMNS = ["topic", "body", "tags", "keys", "queueOffset", "storeTimestamp", "properties"]
"""What both sides read of each message."""


def start_ours() -> Child:
    """A fresh process of our side."""
    return Child("Penstock", [sys.executable, "-m", "penstock.bench.ours"], python_environment())


def _work(command: Answer) -> Work:
    names = ("n", "body", "writers", "batch", "in_flight", "queues", "first", "topic")
    return Work(**{name: command[name] for name in names if name in command})


class Ours:
    """The open store and the works on it."""

    def __init__(self) -> None:
        self.store: Any = None

    def answer(self, command: Answer) -> Answer:
        works: dict[str, Callable[[Answer], Answer]] = {
            "open": self.open,
            "put": self.put,
            "get": self.get,
            "columns": self.columns,
            "query": self.query,
            "close": self.close,
            "rebuild": self.rebuild,
            "kill": self.kill,
            "checkpoint": self.checkpoint,
            "spread": self.spread,
            "memory": lambda _: {"descriptors": open_descriptors()},
        }
        return works[command["do"]](command)

    def open(self, command: Answer) -> Answer:
        """Timed from the call to the moment when queues and index hold everything."""
        config, _ = load_config(env={}, flags=command.get("config", {}))
        start = time.perf_counter()
        store: Any = open_store(command["dir"], flush=config.flush_disk_type, config=config)
        opened = time.perf_counter()
        deadline = start + _VISIBLE_TIMEOUT
        while store.reput_from_offset < store.max_physical_offset:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"dispatch stands at {store.reput_from_offset}")
            time.sleep(0.0001)
        ready = time.perf_counter()
        self.store = store
        return {
            "seconds": ready - start,
            "opened_seconds": opened - start,
            "maxPhysicalOffset": store.max_physical_offset,
        }

    def close(self, command: Answer) -> Answer:
        start = time.perf_counter()
        self.store.close()
        self.store = None
        return {"seconds": time.perf_counter() - start}

    def rebuild(self, command: Answer) -> Answer:
        directory = Path(command["dir"])
        for entry in directory.iterdir():
            # Whatever is not the log is made from it; `penstock` files keep positions in what is gone.
            if entry.name in _REBUILT or entry.name.startswith("penstock"):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        return self.open(command)

    def kill(self, command: Answer) -> Answer:
        send({"ok": True})
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive after SIGKILL")

    def checkpoint(self, command: Answer) -> Answer:
        """What a running store does once a minute: recovery will start here."""
        self.store.sync_positions()
        return {}

    # -- putting ------------------------------------------------------------------------------------------

    def put(self, command: Answer) -> Answer:
        work = _work(command)
        before = self._readable(work)
        first_offset = self.store.max_physical_offset
        start = time.perf_counter()
        if work.in_flight > 1:
            last = [uvloop.run(self._put_async(work))]
        elif work.writers > 1:
            last = self._put_threads(work)
        else:
            last = [self._put_share(work, 0)]
        acknowledged = time.perf_counter()
        self._await_visible(work, before + work.n, last)
        seconds = time.perf_counter() - start
        end = self.store.max_physical_offset
        return {
            "count": work.n,
            "seconds": seconds,
            "acknowledged_seconds": acknowledged - start,
            "rate": work.n / seconds,
            "max_physical_offset": end,
            "record_bytes": (end - first_offset) // work.n,
        }

    def _put_share(self, work: Work, writer: int) -> Any:
        """The messages of one writer; its last result."""
        if work.batch > 1:
            return self._put_batches(work, writer)
        put, body, topic, queues, distinct = (
            self.store.put,
            work.body_bytes(),
            work.topic,
            work.queues,
            work.distinct,
        )
        result = None
        for index in range(work.first + writer, work.first + work.n, work.writers):
            # The unique key is made by the store, as each message without one gets it.
            result = put(Message(topic, body, f"tag{index % 8}", f"k{index % distinct}", index % queues))
            if not result.ok:
                raise RuntimeError(f"put answered {result!r}")
        return result

    def _put_batches(self, work: Work, writer: int) -> Any:
        put_many, body, topic, queues, distinct = (
            self.store.put_many,
            work.body_bytes(),
            work.topic,
            work.queues,
            work.distinct,
        )
        last = None
        for number in range(writer, (work.n + work.batch - 1) // work.batch, work.writers):
            begin = work.first + number * work.batch
            end = min(work.first + work.n, begin + work.batch)
            results = put_many(
                [
                    Message(topic, body, f"tag{index % 8}", f"k{index % distinct}", index % queues)
                    for index in range(begin, end)
                ]
            )
            if not results.ok:
                raise RuntimeError(f"put_many answered {[result.status for result in results]}")
            last = results[-1]
        return last

    def _put_threads(self, work: Work) -> list[Any]:
        last: list[Any] = [None] * work.writers
        failures: list[BaseException] = []

        def run(writer: int) -> None:
            try:
                last[writer] = self._put_share(work, writer)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(writer,)) for writer in range(work.writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return last

    async def _put_async(self, work: Work) -> Any:
        """One loop, ``in_flight`` puts under way at any time."""
        put, body, topic = self.store.put_async, work.body_bytes(), work.topic
        queues, distinct = work.queues, work.distinct
        numbers = iter(range(work.first, work.first + work.n))
        last = None

        async def run() -> None:
            nonlocal last
            for index in numbers:
                result = await put(
                    Message(topic, body, f"tag{index % 8}", f"k{index % distinct}", index % queues)
                )
                if not result.ok:
                    raise RuntimeError(f"put_async answered {result!r}")
                if last is None or result.physical_offset > last.physical_offset:
                    last = result

        await asyncio.gather(*(run() for _ in range(work.in_flight)))
        return last

    def _readable(self, work: Work) -> int:
        return sum(max(0, self.store.max_offset(work.topic, queue)) for queue in range(work.queues))

    def _await_visible(self, work: Work, expected: int, last: list[Any]) -> None:
        """Until all are readable in their queues and the last of each writer is found by its unique key."""
        deadline = time.perf_counter() + _VISIBLE_TIMEOUT

        def pause() -> None:
            if time.perf_counter() > deadline:
                raise TimeoutError("the last message did not become visible")
            time.sleep(0.00005)

        while self._readable(work) < expected:
            pause()
        for result in last:
            while True:
                message = self.store.lookup(result.physical_offset)
                found = self.store.query(work.topic, message.unique_key, max=1) if message else []
                if any(hit.physical_offset == result.physical_offset for hit in found):
                    break
                pause()

    def spread(self, command: Answer) -> Answer:
        """A few messages into each of many queues."""
        queues, each = command["queues"], command["each"]
        body = bytes(command.get("body", 128))
        start = time.perf_counter()
        count = 0
        for round_number in range(each):
            for begin in range(0, queues, 64):
                results = self.store.put_many(
                    [
                        Message(f"spread-{queue // 8}", body, "tag", f"k{round_number}", queue % 8)
                        for queue in range(begin, min(queues, begin + 64))
                    ]
                )
                if not results.ok:
                    raise RuntimeError("put_many was refused")
                count += len(results)
        while self.store.reput_from_offset < self.store.max_physical_offset:
            time.sleep(0.0001)
        return {
            "count": count,
            "seconds": time.perf_counter() - start,
            "maxPhysicalOffset": self.store.max_physical_offset,
            "descriptors": open_descriptors(),
        }

    # -- reading ------------------------------------------------------------------------------------------

    def get(self, command: Answer) -> Answer:
        """Each queue from beginning to end; with ``decode`` the usual fields of each message are read."""
        topic, count, decode = command.get("topic", "bench"), command.get("count", 32), command.get("decode")
        get = self.store.get
        messages = calls = size = total = 0
        start = time.perf_counter()
        for queue in range(command.get("queues", 4)):
            offset = self.store.min_offset(topic, queue)
            while True:
                result = get(topic, queue, offset, count)
                if result.status != "FOUND":
                    break
                calls += 1
                if decode:
                    for message in result.messages:
                        messages += 1
                        total += (
                            len(message.topic)
                            + len(message.body)
                            + len(message.tags)
                            + len(message.keys)
                            + message.queue_offset
                            + message.store_timestamp
                            + len(message.properties)
                        )
                else:
                    messages += len(result.raw)
                size += result.buffer_size
                offset = result.next_begin_offset
        seconds = time.perf_counter() - start
        return {
            "count": messages,
            "calls": calls,
            "bytes": size,
            "seconds": seconds,
            "rate": messages / seconds,
            "sum": total,
        }

    def columns(self, command: Answer) -> Answer:
        """Every message of the topic as Arrow record batches, with the columns that the peer reads too."""
        import pyarrow

        from penstock._native.columns import decode_result

        topic, count = command.get("topic", "bench"), command["count"]
        get = self.store.get
        messages = size = 0
        start = time.perf_counter()
        for queue in range(command.get("queues", 4)):
            offset = self.store.min_offset(topic, queue)
            while (result := get(topic, queue, offset, count)).status == "FOUND":
                batch = pyarrow.record_batch(decode_result(result, READ_COLUMNS))
                messages += batch.num_rows
                size += result.buffer_size
                offset = result.next_begin_offset
        seconds = time.perf_counter() - start
        return {"count": messages, "bytes": size, "seconds": seconds, "rate": messages / seconds}

    def query(self, command: Answer) -> Answer:
        queries, distinct, count = command["queries"], command["distinct"], command.get("count", 32)
        rng = Random(command.get("seed", 1))
        query = self.store.query
        hits = total = 0
        start = time.perf_counter()
        for _ in range(queries):
            found = query("bench", f"k{rng.randrange(distinct)}", max=count)
            hits += len(found)
            for message in found:
                total += message.size
        seconds = time.perf_counter() - start
        return {
            "count": queries,
            "hits": hits,
            "seconds": seconds,
            "rate": queries / seconds,
            "sum": total,
        }


def open_descriptors() -> int:
    """How many this process holds."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def send(answer: Answer) -> None:
    """One line out, with the memory this process has."""
    sys.stdout.write(json.dumps({**answer, "rss_anon": rss_anon()}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer commands until the input ends."""
    side = Ours()
    for line in sys.stdin:
        try:
            send({**side.answer(json.loads(line)), "ok": True})
        except Exception as error:
            send({"ok": False, "error": repr(error), "trace": traceback.format_exc()})


if __name__ == "__main__":
    main()
