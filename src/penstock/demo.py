"""``make demo``: a broker from end to end in seconds, then Spark over its store where there is a Java."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.bench.penstockbroker import PenstockBroker
from penstock.client import Consumer, Producer
from penstock.errors import PenstockError, SparkUnavailable
from penstock.message import Message
from penstock.store.verify import verify_store

# Small files, so that a few seconds of sending roll over several of them.
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
}
TOPICS = ("orders", "payments", "shipping")
MESSAGES = 3000
KILLED_AFTER = 20_000
IN_FLIGHT = 512
REPORT = "penstock-demo.html"
QUERY = """
select topic, tags, count(*) as messages, count(distinct queueId) as queues, sum(length(body)) as bytes
from messages group by topic, tags order by topic, tags
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; ``--store``: without its Spark part."""
    given = sys.argv[1:] if arguments is None else arguments
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        fine, records = show_broker(Path(folder))
        if given != ["--store"]:
            try:
                fine = show_spark(str(Path(folder) / "store"), records) and fine
            except SparkUnavailable as error:
                print(f"\nThe Spark part is left out: {error}.")
        return 0 if fine else 1


def _say(what: str, result: str) -> None:
    print(f"  {what:<34} {result}", flush=True)


@contextmanager
def _timed() -> Iterator[list[float]]:
    took = [0.0]
    begin = time.monotonic()
    yield took
    took[0] = time.monotonic() - begin


def show_broker(folder: Path) -> tuple[bool, int]:
    """Send, consume, be killed, recover; whether all is well, and how many records the store has."""
    print("Penstock: a message broker that RocketMQ's clients and files fit\n")
    with PenstockBroker(folder, settings=SETTINGS) as broker:
        _say("penstock up", f"listens after {broker.start_seconds:.2f} s; name server {broker.namesrv}")
        asyncio.run(_send_and_consume(broker.namesrv))
        acked = asyncio.run(_send_until_killed(broker))
        _say("kill -9 the broker while it stores", f"after {len(acked)} acknowledgements")
        broker.stop(kill=True)
        broker.start()
        stored = asyncio.run(_read_all(broker.namesrv, "killed", len(acked)))
        lost, doubled = len(acked - set(stored)), len(stored) - len(set(stored))
        _say("penstock up again", f"after {broker.start_seconds:.2f} s; {lost} lost, {doubled} doubled")
    report = verify_store(str(folder / "store"))
    _say(
        "verify the store it left",
        f"{report.records} records, {report.units} queue units, {report.index_entries} index entries: "
        + ("healthy" if report.healthy else f"{report.fault_count} faults"),
    )
    fine = report.healthy and not lost and not doubled
    print("\n" + ("Everything that was acknowledged is there, once." if fine else "SOMETHING IS WRONG."))
    return fine, report.records


async def _send_and_consume(namesrv: str) -> None:
    def message(n: int) -> Message:
        topic = TOPICS[n % 3]
        return Message(topic, f"{topic} number {n}".encode(), tags="demo", keys=f"key-{n}")

    async with Producer("demo", namesrv=namesrv) as producer:
        with _timed() as took:
            for start in range(0, MESSAGES, IN_FLIGHT):
                numbers = range(start, min(start + IN_FLIGHT, MESSAGES))
                await asyncio.gather(*(producer.send(message(n)) for n in numbers))
        _say("send to three topics, synced", f"{MESSAGES} messages in {took[0]:.2f} s, on disk when answered")
        async with Consumer("demo", list(TOPICS), namesrv=namesrv, start="earliest") as consumer:
            with _timed() as took:
                seen = await _take(consumer, MESSAGES)
            _say(
                "consume them in a group",
                f"{len(set(seen))} in {took[0]:.2f} s with joining, first {seen[0]!r}",
            )
            with _timed() as took:
                await producer.send(Message("orders", b"one more"))
                (last,) = await _take(consumer, 1)
            _say("one more, synced and delivered", f"{last!r} after {took[0] * 1000:.1f} ms")


async def _take(consumer: Consumer, count: int) -> list[str]:
    seen = []
    for _ in range(count):
        async with await anext(consumer) as message:
            seen.append(message.body.decode())
    return seen


async def _read_all(namesrv: str, topic: str, count: int) -> list[str]:
    """Read a topic from the beginning until so many messages came and no more follow at once."""
    seen: list[str] = []
    async with Consumer("demo-after", topic, namesrv=namesrv, start="earliest") as consumer:
        while True:
            try:
                patience = 30.0 if len(set(seen)) < count else 1.0
                message = await asyncio.wait_for(anext(consumer), patience)
            except TimeoutError:
                return seen
            async with message:
                seen.append(message.body.decode())


async def _send_until_killed(broker: PenstockBroker) -> set[str]:
    """Send as fast as it goes and SIGKILL the broker in the middle. What it had answered by then."""
    acked: set[str] = set()

    async with Producer("demo", namesrv=broker.namesrv) as producer:
        numbers = iter(range(10**9))

        async def send() -> None:
            for n in numbers:
                body = f"{n}"
                try:
                    await producer.send(Message("killed", body.encode(), keys=f"n{n}"), timeout=2)
                except PenstockError:
                    return
                acked.add(body)
                if len(acked) == KILLED_AFTER:
                    os.kill(broker.pid, signal.SIGKILL)

        await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))
    return acked


def show_spark(path: str, records: int) -> bool:
    """A query and two jobs over the same directory; True when they count what the store counts."""
    from penstock.spark.jobs.export import export
    from penstock.spark.jobs.report import write_report
    from penstock.spark.jobs.stats import stats
    from penstock.spark.session import session
    from penstock.spark.sql import sql

    print("\nThe same directory on Apache Spark\n", flush=True)
    begin = time.monotonic()
    spark = session("local[2]", app_name="penstock demo")
    _say("start Spark", f"{spark.version} on 2 cores, {time.monotonic() - begin:.1f} s")
    try:
        begin = time.monotonic()
        rows = sql(spark, path, QUERY).collect()
        counted = sum(row.messages for row in rows)
        _say("select … from messages group by …", f"{counted} rows in {time.monotonic() - begin:.1f} s")
        for row in rows:
            named = f"{row.topic} [{row.tags}]" if row.tags else row.topic
            print(
                f"      {named:<20} {row.messages:>8} messages of {row.queues} queues, {row.bytes:>8} bytes"
            )
        begin = time.monotonic()
        target = f"{path}-parquet"
        export(spark, path, target)
        exported = spark.read.parquet(target).count()
        _say("job: export to Parquet by topic", f"{exported} rows in {time.monotonic() - begin:.1f} s")
        result = stats(spark, path)
        _say("job: statistics", f"of {result.records} records in {result.seconds:.1f} s")
        write_report(result, REPORT)
        _say("the page with its plots", str(Path(REPORT).resolve()))
    finally:
        spark.stop()
    fine = bool(counted == exported == records)
    print(
        "\n" + ("Spark counts what the store counts." if fine else "SOMETHING IS WRONG: the counts differ.")
    )
    return fine


if __name__ == "__main__":
    sys.exit(main())
