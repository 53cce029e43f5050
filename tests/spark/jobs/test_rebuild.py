"""A rebuild gives the files that the dispatcher writes, or leaves those that were there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from golden_store import CASES, KILLED_CASES, unpack
from penstock import Message, StoreConfig
from penstock.errors import CorruptRecord, StoreError, StoreLocked
from penstock.spark import jobs
from penstock.spark.jobs import swap
from penstock.store.opening import open_writable
from penstock.store.verify import verify_store

from .inprocess import without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPECIAL = {
    "batches": StoreConfig(),
    "lmq": StoreConfig(enable_multi_dispatch=True),
    "queue-ext": StoreConfig(enable_consume_queue_ext=True),
}
KINDS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
CLOSED = [case for case in CASES if case not in (*SPECIAL, *KILLED_CASES)]
CONFIG = StoreConfig(
    mapped_file_size_commit_log=32 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=300,
    flush_disk_type="async",
)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    return without_spark(monkeypatch, "rebuild")


def written(path: Path, count: int = 500) -> Path:
    with open_writable(path, config=CONFIG) as store:
        store.put_many(
            [
                Message(f"t{n % 3}", b"%d" % n * 20, keys=f"k{n} all", tags="ab"[n % 2], queue_id=n % 2)
                for n in range(count)
            ]
        )
    return path


def files(path: Path, kind: str) -> dict[str, bytes]:
    return {
        str(f.relative_to(path / kind)): f.read_bytes()
        for f in sorted((path / kind).rglob("*"))
        if f.is_file()
    }


def dispatched(path: Path, target: Path, config: StoreConfig | None = None) -> Path:
    """The same store with queues and index made anew by the dispatcher."""
    shutil.copytree(path, target)
    with open_writable(target, config=config, rebuild=True, background=False):
        pass
    return target


def assert_as_dispatched(path: Path, reference: Path) -> None:
    assert files(path, "consumequeue") == files(reference, "consumequeue")
    # Their names are times of making.
    assert list(files(path, "index").values()) == list(files(reference, "index").values())


@pytest.mark.parametrize("split_bytes", [1 << 30, 5000])
@pytest.mark.parametrize("case", CLOSED)
def test_a_real_store_gets_the_dispatchers_files(
    case: str, split_bytes: int, tmp_path: Path, job: Any
) -> None:
    store = unpack(case, tmp_path).path
    queues = files(store, "consumequeue")
    reference = dispatched(store, tmp_path / "reference")
    job.rebuild(None, str(store), split_bytes=split_bytes)
    assert_as_dispatched(store, reference)
    assert files(store, "consumequeue") == queues
    assert verify_store(str(store)).healthy


@pytest.mark.parametrize("case", KILLED_CASES)
def test_a_recovered_store_gets_the_dispatchers_files(case: str, tmp_path: Path, job: Any) -> None:
    store = unpack(case, tmp_path, recovered=True).path
    reference = dispatched(store, tmp_path / "reference")
    job.rebuild(None, str(store), split_bytes=16 << 10)
    assert_as_dispatched(store, reference)


def test_what_was_lost_or_damaged_is_built_again(tmp_path: Path, job: Any) -> None:
    store = written(tmp_path / "store")
    whole = {kind: files(store, kind) for kind in ("consumequeue", "index")}
    shutil.rmtree(store / "consumequeue" / "t1")
    file = next((store / "consumequeue" / "t2" / "0").iterdir())
    file.write_bytes(b"\xff" * file.stat().st_size)
    for name in sorted(whole["index"])[1:]:
        data = bytearray(whole["index"][name])
        data[60:80] = bytes(20)
        (store / "index" / name).write_bytes(data)
    assert not verify_store(str(store)).healthy
    result = job.rebuild(None, str(store), split_bytes=5000)
    assert result.records == result.units == 500
    assert {name.split("/")[0] for name in result.changed} == {"consumequeue", "index"}
    assert {kind: files(store, kind) for kind in whole} == whole
    assert verify_store(str(store)).healthy
    with open_writable(store, config=CONFIG) as opened:
        assert opened.report.index == "kept"
        assert not opened.report.faults
        assert [m.body for m in opened.query("t1", "k4")] == [b"4" * 20]


def test_a_store_without_any_index_gets_one_that_answers(tmp_path: Path, job: Any) -> None:
    store = written(tmp_path / "store")
    whole = list(files(store, "index").values())
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue")
    first = job.rebuild(None, str(store), split_bytes=5000, index=True, config=CONFIG)
    assert list(files(store, "index").values()) == whole
    assert first.index_files == len(whole)
    names = list(files(store, "index"))
    assert job.rebuild(None, str(store), split_bytes=1 << 20).changed == []
    assert list(files(store, "index")) == names
    with open_writable(store, config=CONFIG) as opened:
        assert not opened.report.faults
        assert {m.body for m in opened.query("t0", "k3")} == {b"3" * 20}


def test_units_of_messages_that_retention_removed_stay(tmp_path: Path, job: Any) -> None:
    store = unpack("deleted-head", tmp_path).path
    queues = files(store, "consumequeue")
    assert job.rebuild(None, str(store), split_bytes=5000, index=False).changed == []
    assert files(store, "consumequeue") == queues


def test_a_lost_record_leaves_a_blank_unit(tmp_path: Path, job: Any) -> None:
    from penstock.store.repair import repair_store

    store = written(tmp_path / "store")
    log = sorted((store / "commitlog").iterdir())[1]
    data = bytearray(log.read_bytes())
    data[300] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptRecord):
        job.rebuild(None, str(store))
    assert not (store / "penstock.rebuild").exists()
    assert repair_store(str(store)).healthy
    repaired = files(store, "consumequeue")
    shutil.rmtree(store / "consumequeue")
    for split_bytes in (1 << 20, 3000):
        job.rebuild(None, str(store), split_bytes=split_bytes, config=CONFIG)
        assert files(store, "consumequeue") == repaired


def test_a_dry_run_says_what_differs_and_leaves_it(tmp_path: Path, job: Any) -> None:
    store = written(tmp_path / "store")
    assert job.rebuild(None, str(store), dry_run=True).changed == []
    file = store / "consumequeue" / "t0" / "0" / f"{0:020d}"
    file.write_bytes(bytes(2000))
    before = files(store, ".")
    result = job.rebuild(None, str(store), dry_run=True)
    assert result.changed == [f"consumequeue/t0/0/{0:020d}"]
    assert files(store, ".") == before


def test_a_store_in_use_or_not_closed_is_refused(tmp_path: Path, job: Any) -> None:
    store = written(tmp_path / "store")
    with open_writable(store, config=CONFIG), pytest.raises(StoreLocked):
        job.rebuild(None, str(store))
    (store / "abort").touch()
    with pytest.raises(StoreError, match="did not close"):
        job.rebuild(None, str(store))


@pytest.mark.parametrize("split_bytes", [1 << 30, 5000])
@pytest.mark.parametrize("case", SPECIAL)
def test_queues_of_other_kinds_get_the_dispatchers_files(
    case: str, split_bytes: int, tmp_path: Path, job: Any
) -> None:
    store = unpack(case, tmp_path).path
    real = {kind: files(store, kind) for kind in KINDS}
    reference = dispatched(store, tmp_path / "reference", SPECIAL[case])
    result = job.rebuild(None, str(store), split_bytes=split_bytes)
    for kind in KINDS:
        assert files(store, kind) == files(reference, kind), kind
        # RocketMQ's extension files hold bitmaps of the filters of that day: no log knows them.
        assert files(store, kind) == real[kind] or case == "queue-ext", kind
    assert result.queues == sum(len(list((store / kind).glob("*/*"))) for kind in KINDS[:2])
    assert_as_dispatched(store, reference)
    assert verify_store(str(store)).healthy
    assert job.rebuild(None, str(store), split_bytes=30_000).changed == []


def test_a_failure_leaves_the_old_files(tmp_path: Path, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = written(tmp_path / "store")
    (store / "consumequeue" / "t0" / "0" / f"{0:020d}").write_bytes(bytes(2000))
    before = {kind: files(store, kind) for kind in ("consumequeue", "index")}

    ran = job.run_splits

    def failing(spark: Any, splits: Any, work: Any, *more: Any, **named: Any) -> Any:
        if work is job.build_index:
            raise OSError("no more")
        return ran(spark, splits, work, *more, **named)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no more"):
        patched.setattr(job, "run_splits", failing)
        job.rebuild(None, str(store))
    assert {kind: files(store, kind) for kind in before} == before
    assert not (store / "penstock.rebuild").exists()


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("stopped_at", range(3))
def test_a_kill_while_folders_change_places_leaves_one_or_the_other(
    stopped_at: int, at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before any step of the exchange, the next run finds the old folder or the new one."""
    root = tmp_path / "store"
    build = root / "penstock.rebuild"
    for folder, content in ((root / "index", "old"), (build / "index", "new")):
        folder.mkdir(parents=True)
        (folder / "file").write_text(content)
    if not at_once:
        monkeypatch.setattr(swap, "_exchange_at_once", lambda one, other: False)
    steps = 0
    rename = Path.rename

    class Killed(BaseException):
        pass

    def counted(self: Path, target: Path) -> Path:
        nonlocal steps
        if steps == stopped_at:
            raise Killed
        steps += 1
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", counted)
        try:
            swap.exchange(root / "index", build / "index")
        except Killed:
            assert not at_once
    swap.restore(root, build)
    done = at_once or stopped_at > 1
    assert (root / "index" / "file").read_text() == ("new" if done else "old")
    assert not build.exists()


def test_spark_tasks_build_what_the_dispatcher_builds(spark: SparkSession, tmp_path: Path) -> None:
    store = written(tmp_path / "store")
    whole = {kind: files(store, kind) for kind in ("consumequeue", "index")}
    shutil.rmtree(store / "consumequeue")
    result = jobs.rebuild(spark, str(store), split_bytes=32 << 10, config=CONFIG)
    assert result.index_files > 1
    assert {kind: files(store, kind) for kind in whole} == whole
