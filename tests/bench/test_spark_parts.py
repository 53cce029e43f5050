"""The peers of ``penstock bench spark`` do the same work; its parts that can be wrong without a benchmark."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import open_store
from penstock.bench.child import ChildFailed
from penstock.bench.report import terminated_as_interrupted
from penstock.bench.row import Row
from penstock.bench.spark.bench import run, take_rounds
from penstock.bench.spark.comparison import Comparison, Plan
from penstock.bench.spark.data import QUEUES, TOPICS, Dataset, write_store
from penstock.bench.spark.groups import comparisons
from penstock.bench.spark.processes import Peak, cpu_seconds, descendants, sample, watching
from penstock.bench.spark.scanners import check_side_by_side, scan_side_by_side, scanners
from penstock.bench.spark.turns import Measured, SparkScale, Spec, Turns
from penstock.format.record import decode_record

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
COUNT = 5_000
SEGMENT = 256 << 10


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "store"
    write_store(path, COUNT, segment=SEGMENT)
    return path


def test_messages_of_the_bench_are_about_200_bytes_and_spread_evenly(store: Path) -> None:
    opened: Any
    with open_store(store, read_only=True) as opened:
        ends = [opened.max_offset(*queue) for queue in opened.queues()]
        mean = opened.max_physical_offset / COUNT
    assert len(ends) == TOPICS * QUEUES and sum(ends) == COUNT
    assert max(ends) - min(ends) <= 1
    assert 190 <= mean <= 215


def test_source_of_tuples_reads_the_same_messages(store: Path) -> None:
    from penstock.bench.spark.tuplesource import TupleReader
    from penstock.spark.schema import NAMES

    reader = TupleReader(str(store))
    rows = [dict(zip(NAMES, row, strict=True)) for part in reader.partitions() for row in reader.read(part)]
    assert len(rows) == COUNT
    opened: Any
    with open_store(store, read_only=True) as opened:
        for row in rows[::500]:
            message = opened.lookup(row["physicalOffset"])
            assert (row["topic"], row["queueId"], row["queueOffset"]) == (
                message.topic,
                message.queue_id,
                message.queue_offset,
            )
            assert (row["body"], row["keys"], row["tags"]) == (message.body, message.keys, message.tags)
            assert (row["properties"], row["size"]) == (message.properties, message.size)
            assert (row["msgId"], row["bornHost"]) == (message.message_id, message.born_host)
            assert row["storeTimestamp"].timestamp() * 1000 == pytest.approx(message.store_timestamp)


def test_row_writer_encodes_records_of_the_format(tmp_path: Path) -> None:
    from penstock.bench.spark.rowwriter import RowWriter, Written

    rows = [
        {"topic": f"T{n % 2}", "queueId": n % 3, "keys": f"k{n}", "tags": None, "body": bytearray(b"b%d" % n)}
        for n in range(50)
    ]
    message = RowWriter(str(tmp_path)).write(iter(rows))  # type: ignore[arg-type]
    assert isinstance(message, Written) and message.rows == 50
    data, at = Path(message.path).read_bytes(), 0
    for row in rows:
        record = decode_record(data, at)
        assert (record.topic, record.queue_id, bytes(record.body)) == (
            row["topic"],
            row["queueId"],
            row["body"],
        )
        assert record.physical_offset == at
        assert record.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF
        at += record.total_size
    assert at == len(data)


def test_scanners_share_the_log_and_see_every_record(store: Path) -> None:
    with scanners(2) as children:
        assert scan_side_by_side(children, store) == COUNT
        assert check_side_by_side(children, store) == COUNT
        assert all(child.alive for child in children)


def test_scanners_do_not_overlook_damage(store: Path, tmp_path: Path) -> None:
    import shutil

    hurt = shutil.copytree(store, tmp_path / "store")
    file = hurt / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[90] ^= 1  # in the first body
    file.write_bytes(data)
    with scanners(1) as children, pytest.raises(ChildFailed, match="damage"):
        scan_side_by_side(children, hurt)


def test_memory_of_processes_below_is_seen() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0)
    try:
        assert child in descendants(os.getpid())
        peak = Peak()
        sample(os.getpid(), peak)
        with watching(os.getpid()) as watched:
            assert child in descendants(os.getpid())
        assert peak.workers > 0 and watched.workers > 0
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_processor_time_of_ended_children_counts() -> None:
    before = cpu_seconds(os.getpid())
    child = os.fork()
    if child == 0:
        while sum(os.times()[:2]) < 0.1:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    assert cpu_seconds(os.getpid()) - before >= 0.05


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Turns]:
    """Turns whose sides answer at once, with given seconds; an error is raised instead."""

    def make(answers: dict[str, float | BaseException], **scale: Any) -> Turns:
        made = Turns.make(tmp_path, SparkScale(**scale), lambda text: None)

        def measure(spec: Spec) -> Measured:
            answer = answers[spec.source]
            if isinstance(answer, BaseException):
                raise answer
            return Measured(
                spec.data.rows, [answer], workers=1, log_bytes=200 * spec.data.rows, cpu=[2 * answer]
            )

        monkeypatch.setattr(made, "measure", measure)
        return made

    return make


def compared(tmp_path: Path, **options: Any) -> Comparison:
    data, slow = Dataset(tmp_path, None, 1000), Dataset(tmp_path, None, 100)
    sides = {
        "ours": Spec("all", data),
        "slow": Spec("all", slow, "tuples"),
        "other": Spec("all", data, "nobody"),
    }
    plans = [
        Plan("all-tuples", "all columns", "ours", "slow", "tuples", 5.0),
        Plan("all-parquet", "all columns", "ours", "other", "Parquet", 0.75),
    ]
    return Comparison(options.pop("name", "columns"), sides, plans, **options)


def test_rows_compare_rates_and_unneeded_sides_do_not_run(
    turns: Callable[..., Turns], tmp_path: Path
) -> None:
    chosen = compared(tmp_path).chosen(lambda key: key == "all-tuples")
    assert chosen is not None
    failures: list[str] = []
    take_rounds(turns({"ours": 2.0, "tuples": 1.0}), [chosen], lambda row: None, failures)
    assert failures == []
    [row] = chosen.rows()
    assert isinstance(row, Row)
    assert (row.ours, row.peer, row.ratio, row.reached) == (500.0, 100.0, 5.0, True)
    assert row.to_json()["mib_per_s"] == pytest.approx(500 * 200 / (1 << 20))
    assert len(row.to_json()["rounds"]["ours"]) == 3
    assert row.to_json()["cpu_us_per_row"] == {"ours": 4000.0, "peer": 20000.0}


def test_a_comparison_that_fails_leaves_the_others(turns: Callable[..., Turns], tmp_path: Path) -> None:
    wrong, right = compared(tmp_path, name="wrong"), compared(tmp_path, name="right", once=True)
    right.sides["other"] = right.sides["slow"]
    answers = {"ours": 2.0, "tuples": 1.0, "nobody": RuntimeError("no such side")}
    failures: list[str] = []
    take_rounds(turns(answers), [wrong, right], lambda row: None, failures)
    assert failures == ["wrong: no such side"]
    assert [row.key for row in wrong.rows()] == ["all-tuples"]
    assert [row.key for row in right.rows()] == ["all-tuples", "all-parquet"]
    assert len(right.results["ours"]) == 1


def test_no_round_is_begun_that_would_end_too_late(turns: Callable[..., Turns], tmp_path: Path) -> None:
    comparison = compared(tmp_path)
    take_rounds(
        turns({"ours": 2.0, "tuples": 1.0, "nobody": 1.0}, seconds=0.0), [comparison], lambda _: None, []
    )
    assert [len(made) for made in comparison.results.values()] == [1, 1, 1]


def test_an_interrupted_run_tells_what_it_has(
    turns: Callable[..., Turns], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = turns({"ours": 2.0, "tuples": 1.0, "nobody": KeyboardInterrupt()})
    monkeypatch.setattr("penstock.bench.spark.bench.Turns.make", lambda *_: made)
    monkeypatch.setattr("penstock.bench.spark.bench.comparisons", lambda _: [compared(tmp_path)])
    report = run(tmp_path, scale=SparkScale.quick(), patterns=[], progress=lambda text: None)
    assert report["failures"] == ["interrupted"]
    assert [row["key"] for row in report["rows"]] == ["all-tuples"]


def test_a_request_to_end_is_an_interruption() -> None:
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        os.kill(os.getpid(), signal.SIGTERM)


def test_every_row_has_a_name_of_its_own_and_sides_that_there_are(tmp_path: Path) -> None:
    made = list(comparisons(Turns.make(tmp_path, SparkScale(), lambda text: None)))
    keys = [plan.key for comparison in made for plan in comparison.plans]
    assert len(keys) == len(set(keys))
    for comparison in made:
        assert {side for plan in comparison.plans for side in (plan.ours, plan.peer)} == set(comparison.sides)
        assert all(spec.path for spec in comparison.sides.values())


def test_path_of_a_side_is_what_it_reads(tmp_path: Path) -> None:
    data = Dataset(tmp_path / "store", tmp_path / "parquet", 1)
    assert Spec("all", data).path == Spec("all", data, "tuples").path == data.store
    assert Spec("all", data, "parquet").path == Spec("write", data).path == data.parquet


def test_report_is_drawn_with_the_bytes_of_log(tmp_path: Path) -> None:
    from penstock.bench.report import table

    rows = [
        Row("a", "all columns", "rows/s", 1e6, 5e5, 0.75, detail={"mib_per_s": 196.4}).to_json(),
        Row("b", "first result", "s", 5.0, 10.0, 1.67, lower_is_better=True).to_json(),
    ]
    drawn = table({"bench": "spark", "rows": rows})
    assert drawn.title == "penstock bench spark"
    assert [str(column.header) for column in drawn.columns][:3] == ["work", "ours", "MiB/s"]
    assert list(drawn.columns[2].cells) == ["196", ""]
