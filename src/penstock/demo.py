"""``make demo``: the store from end to end in a few seconds, then Spark over it where there is a Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock import Message, StoreConfig
from penstock.errors import SparkUnavailable
from penstock.store.messagestore import MessageStore
from penstock.store.opening import open_writable
from penstock.store.verify import verify_store

# Small files, so that a few seconds of writing roll over several of them.
CONFIG = StoreConfig(
    mapped_file_size_commit_log=4 << 20,
    mapped_file_size_consume_queue=20_000,
    max_hash_slot_num=50_000,
    max_index_num=200_000,
)
TOPICS = ("orders", "payments", "shipping")
REPORT = "penstock-demo.html"
QUERY = """
select topic, tags, count(*) as messages, count(distinct queueId) as queues, sum(length(body)) as bytes
from messages group by topic, tags order by topic, tags
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; ``--store``: without its Spark part; ``--writer PATH``: be the child that is killed."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--writer"]:
        _write_until_killed(given[1])
        return 0
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        path = str(Path(folder) / "store")
        fine, records = _show_store(path)
        if given != ["--store"]:
            try:
                fine = show_spark(path, records) and fine
            except SparkUnavailable as error:
                print(f"\nThe Spark part is left out: {error}.")
        return 0 if fine else 1


def _say(what: str, result: str) -> None:
    print(f"  {what:<34} {result}", flush=True)


def _show_store(path: str) -> tuple[bool, int]:
    """Write, read, find, be killed, recover; whether all is well, and how many records there are."""
    print("Penstock: a durable message log that keeps Apache RocketMQ's bytes\n")
    with open_writable(path, config=CONFIG) as store:
        _put_and_read(store)
    acked = _kill_a_writer(path)
    lost, doubled = _recover(path, acked)
    report = verify_store(path)
    _say(
        "verify the whole directory",
        f"{report.records} records, {report.units} queue units, {report.index_entries} index entries: "
        + ("healthy" if report.healthy else f"{report.fault_count} faults"),
    )
    fine = report.healthy and not lost and not doubled
    print(
        "\n"
        + ("Everything that was acknowledged is there, once and in order." if fine else "SOMETHING IS WRONG.")
    )
    return fine, report.records


def _put_and_read(store: MessageStore) -> None:
    begin = time.monotonic()
    count = 3000
    batch = [
        Message(
            TOPICS[n % 3],
            f"{TOPICS[n % 3]} number {n}".encode(),
            tags="demo",
            keys=f"key-{n}",
            queue_id=n % 2,
        )
        for n in range(count)
    ]
    for start in range(0, count, 64):
        store.put_many(batch[start : start + 64])
    took = time.monotonic() - begin
    _say("put into three topics, synced", f"{count} messages in {took:.2f} s, on disk when acknowledged")
    store.wait_visible()
    result = store.get("orders", 0, 0, 3)
    bodies = ", ".join(repr(message.body.decode()) for message in result.messages)
    _say("get orders, queue 0, offset 0", f"{result.status}: {bodies}")
    found = store.query("payments", "key-1000")
    _say("find payments by key 'key-1000'", ", ".join(message.body.decode() for message in found))


def _kill_a_writer(path: str) -> list[int]:
    """Start a process that writes as fast as it can; SIGKILL it in the middle. What it was told is stored."""
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock.demo", "--writer", path], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    acked: list[int] = []
    for line in child.stdout:
        acked.append(int(line))
        if len(acked) == 20_000:
            os.kill(child.pid, signal.SIGKILL)
            break
    # Lines that were in the pipe when it died are acknowledgements too.
    acked += [int(line) for line in child.stdout if line.endswith("\n")]
    child.wait()
    _say("kill -9 a process while it writes", f"after {len(acked)} acknowledgements")
    return acked


def _write_until_killed(path: str) -> None:
    with open_writable(path, config=CONFIG) as store:
        number = 0
        while True:
            batch = [
                Message("killed", b"%d" % n, keys=f"n{n}", queue_id=0) for n in range(number, number + 64)
            ]
            results = store.put_many(batch)
            lines = [f"{number + i}\n" for i, result in enumerate(results) if result.status == "PUT_OK"]
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            number += 64


def _recover(path: str, acked: list[int]) -> tuple[int, int]:
    """Open again and count: acknowledged messages that are missing, and those that are there twice."""
    begin = time.monotonic()
    with open_writable(path, config=CONFIG) as store:
        took = time.monotonic() - begin
        stored = [int(message.body) for message in store.follow("killed", wait=False)]
        in_order = stored == sorted(stored)
        lost, doubled = len(set(acked) - set(stored)), len(stored) - len(set(stored))
        _say("open again: recovery", f"{took:.2f} s; {len(stored)} messages, {lost} lost, {doubled} doubled")
        return lost + (not in_order), doubled


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
