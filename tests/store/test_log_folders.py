"""A log that lies in several folders, as a rule on several disks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import open_store
from penstock.cli.app import tree
from penstock.clock import ManualClock
from penstock.config import StoreConfig, load_config
from penstock.errors import ConfigError, StoreError
from penstock.files import DiskStorage, MemoryStorage
from penstock.message import Message
from penstock.store.backup import backup_store
from penstock.store.opening import open_writable
from penstock.store.readonly import ReadOnlyStore
from penstock.store.repair import repair_store
from penstock.store.verify import verify_store

app = tree()
SEGMENT = 64 << 10
SMALL = StoreConfig(
    mapped_file_size_commit_log=SEGMENT,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=2000,
)


def spread(tmp_path: Path, folders: str = "a b", **more: Any) -> StoreConfig:
    paths = ",".join(str(tmp_path / name) for name in folders.split())
    return SMALL.replace(store_path_commit_log=paths, **more)


def fill(store: Any, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        assert store.put(Message("orders", b"%06d" % number + bytes(9000), keys=f"k{number}")).ok


def numbers(store: Any) -> list[int]:
    if not isinstance(store, ReadOnlyStore):
        store.wait_visible(store.flushed_where)
    return [int(bytes(message.body[:6])) for message in store.follow("orders", 0, wait=False)]


def layout(*folders: Path) -> dict[str, list[int]]:
    return {f.name: sorted(int(p.name) // SEGMENT for p in f.iterdir()) for f in folders}


def test_files_take_turns_and_everything_is_found_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path)) as store:
        fill(store, 30)
        assert numbers(store) == list(range(30))
    assert layout(tmp_path / "a", tmp_path / "b") == {"a": [0, 2, 4], "b": [1, 3]}
    assert not (root / "commitlog").exists()
    with open_store(root, config=spread(tmp_path)) as store:
        assert store.report.clean
        fill(store, 10, 30)
        assert numbers(store) == list(range(40))
        assert [bytes(m.body[:6]) for m in store.query("orders", "k7")] == [b"000007"]
    report = verify_store(str(root), config=spread(tmp_path))
    assert report.healthy, report.faults
    assert report.records == 40


def test_bytes_are_those_of_a_log_in_one_folder(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    settings = {"generate_unique_key": False}
    for root, config in (("one", SMALL.replace(**settings)), ("many", spread(tmp_path, "a b c", **settings))):
        with open_writable(tmp_path / root, config=config, clock=clock) as store:
            for number in range(30):
                store.put(
                    Message("orders", b"%06d" % number + bytes(9000), born_timestamp=1, born_host="1.2.3.4:5")
                )
    one = {path.name: path.read_bytes() for path in (tmp_path / "one" / "commitlog").iterdir()}
    many = {path.name: path.read_bytes() for name in "abc" for path in (tmp_path / name).iterdir()}
    assert one == many


def test_store_opened_without_its_settings_finds_its_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path)) as store:
        fill(store, 20)
    with open_store(root, read_only=True) as reader:
        assert numbers(reader) == list(range(20))
    with open_store(root) as store:
        fill(store, 20, 20)
        assert numbers(store) == list(range(40))
    assert verify_store(str(root)).healthy
    assert not (root / "commitlog").exists()


def test_directory_that_is_moved_as_a_whole_keeps_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(root, "log1 log2")) as store:
        fill(store, 20)
    root.rename(tmp_path / "moved")
    with open_store(tmp_path / "moved") as store:
        fill(store, 10, 20)
        assert numbers(store) == list(range(30))
    assert not root.exists()


def test_folder_that_left_the_settings_is_still_read_and_gets_no_new_file(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=SMALL) as store:
        fill(store, 10)
    with open_store(root, config=spread(tmp_path, "a b")) as store:
        fill(store, 10, 10)
    with open_store(root, config=spread(tmp_path, "b c")) as store:
        fill(store, 20, 20)
        assert numbers(store) == list(range(40))
    kept = layout(root / "commitlog", tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert kept["commitlog"] == [0, 1]
    assert kept["a"] == [2]
    assert sorted(kept["b"] + kept["c"]) == [3, 4, 5]


def test_read_only_folder_is_read_and_gets_no_new_file(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path, "a b")) as store:
        fill(store, 10)
    sealed = spread(tmp_path, "a b c", read_only_commit_log_store_paths=str(tmp_path / "a"))
    with open_store(root, config=sealed) as store:
        fill(store, 30, 10)
        assert numbers(store) == list(range(40))
    assert layout(tmp_path / "a") == {"a": [0]}
    with pytest.raises(ConfigError, match="reading only"):
        open_store(root, config=sealed.replace(store_path_commit_log=str(tmp_path / "a")))


def test_killed_store_recovers_over_all_folders() -> None:
    storage = MemoryStorage()
    config = SMALL.replace(store_path_commit_log="/disk1/log,/disk2/log")
    store = open_writable("/store", storage=storage, config=config, background=False)
    fill(store, 30)
    again = storage.crash_states(limit=40)
    for state in again:
        with open_writable("/store", storage=state, background=False) as opened:
            assert numbers(opened) == list(range(30))
            fill(opened, 5, 30)
        assert verify_store("/store", storage=state).healthy
    store.abandon()


def test_disk_that_is_nearly_full_gets_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(self: DiskStorage, path: object) -> float:
        return 0.88 if str(path).endswith("/a") else 0.2

    monkeypatch.setattr(DiskStorage, "disk_usage", usage)
    with open_writable(tmp_path / "store", config=spread(tmp_path, "a b"), background=False) as store:
        state = store._upkeep.parts.clean.look_at_disk()
        assert (state.used, state.full) == (0.2, False)
        fill(store, 20)
    assert layout(tmp_path / "a", tmp_path / "b") == {"a": [], "b": [0, 1, 2]}


def test_cleaning_removes_the_oldest_files_of_all_folders(tmp_path: Path) -> None:
    config = spread(tmp_path, "a b", file_reserved_time_hours=0, delete_when=";".join(map(str, range(24))))
    with open_writable(tmp_path / "store", config=config, background=False) as store:
        fill(store, 20)
        assert store._upkeep.parts.clean.run() == 2
        first = numbers(store)[0]
        assert numbers(store) == list(range(first, 20))
        assert first > 0
    assert layout(tmp_path / "a", tmp_path / "b") == {"a": [2], "b": []}
    with open_store(tmp_path / "store") as store:
        assert numbers(store) == list(range(first, 20))


def test_disk_that_is_not_mounted_is_named_and_nothing_is_touched(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path)) as store:
        fill(store, 20)
    (tmp_path / "b").rename(tmp_path / "away")
    for config in (None, spread(tmp_path)):
        with pytest.raises(StoreError) as caught:
            open_store(root, config=config)
        assert caught.value.file == str(tmp_path / "b")
    (tmp_path / "away").rename(tmp_path / "b")
    with open_store(root) as store:
        assert numbers(store) == list(range(20))


def test_log_of_another_store_is_not_written_into(tmp_path: Path) -> None:
    with open_store(tmp_path / "one", config=spread(tmp_path)) as store:
        fill(store, 5)
    before = (tmp_path / "a" / f"{0:020d}").read_bytes()
    with pytest.raises(StoreError, match="no store that it belongs to"):
        open_store(tmp_path / "two", config=spread(tmp_path))
    assert (tmp_path / "a" / f"{0:020d}").read_bytes() == before


def test_reader_beside_the_writer_follows_into_every_folder(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path, "a b c")) as store:
        fill(store, 1)
        with ReadOnlyStore(root, config=spread(tmp_path, "a b c")) as reader:
            fill(store, 39, 1)
            store.wait_visible(store.flushed_where)
            reader.refresh()
            assert numbers(reader) == list(range(40))
            assert reader.lookup(store.queue_unit("orders", 0, 39)[0]) is not None


def test_backup_is_a_plain_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path)) as store:
        fill(store, 20)
        store.backup(str(tmp_path / "live"))
    backup_store(str(root), str(tmp_path / "closed"))
    for name in "ab":
        shutil.rmtree(tmp_path / name)
    for name in ("live", "closed"):
        assert len(list((tmp_path / name / "commitlog").iterdir())) >= 3
        assert verify_store(str(tmp_path / name)).healthy
        with open_store(tmp_path / name) as copy:
            assert numbers(copy) == list(range(20))


def test_repair_puts_a_blank_where_a_file_of_a_folder_is_missing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path)) as store:
        fill(store, 30)
    (tmp_path / "b" / f"{SEGMENT:020d}").unlink()
    (tmp_path / "b" / "notes.txt").write_text("not a part of the log")
    before = verify_store(str(root))
    assert {"missing-file", "foreign-file"} <= {fault.kind for fault in before.faults}
    report = repair_store(str(root))
    assert report.healthy, report.after
    assert (root / "penstock.damaged" / "commitlog" / "notes.txt").exists()
    with open_store(root) as store:
        left = numbers(store)
    assert left[:6] == list(range(6)) and left[-1] == 29


def test_commands_find_the_log_in_its_folders(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, config=spread(tmp_path)) as store:
        fill(store, 20)
    run = CliRunner()
    info = json.loads(run.invoke(app, ["store", "info", str(root), "--json"]).stdout)
    assert info["log"]["folders"] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert info["log"]["files"] == 3
    assert str(tmp_path / "b") in run.invoke(app, ["store", "info", str(root)]).stdout.replace("\n", "")
    verified = run.invoke(app, ["store", "verify", str(root), "--json"])
    assert verified.exit_code == 0 and json.loads(verified.stdout)["records"] == 20
    dumped = run.invoke(app, ["store", "dump", str(root), "--json"])
    assert dumped.exit_code == 0 and len(dumped.stdout.splitlines()) == 20
    got = json.loads(run.invoke(app, ["store", "get", str(root), "orders", "0", "15", "--json"]).stdout)
    assert got["messages"][0]["queue_offset"] == 15
    # A directory of RocketMQ's says nothing: the settings do.
    (root / "penstock.folders").unlink()
    settings = {"PENSTOCK_STORE_PATH_COMMIT_LOG": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    dumped = run.invoke(app, ["store", "dump", str(root), "--json"], env=settings)
    assert len(dumped.stdout.splitlines()) == 20
    assert run.invoke(app, ["store", "dump", str(root), "--json"]).stdout == ""
    lost = run.invoke(app, ["store", "verify", str(root), "--json"])
    assert lost.exit_code == 1
    assert "store_path_commit_log" in json.loads(lost.stdout)["faults"][0]["hint"]


def test_file_that_somebody_removed_under_a_running_store_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_writable(tmp_path / "store", config=spread(tmp_path), background=False) as store:
        fill(store, 20)
        middle = store._log.files.files[1]
        store._log.files._forget(middle)
        for _ in range(3):
            store._upkeep.parts.clean.run()
    told = [record for record in caplog.records if "gap" in record.message]
    assert len(told) == 1
    assert f"{SEGMENT * 2:020d}" in told[0].message


def test_settings_of_a_broker_conf_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("storePathCommitLog=/d2/log,/d1/log\nreadOnlyCommitLogStorePaths=/d0/log\n")
    config, _ = load_config(file, env={})
    assert config.store_path_commit_log == "/d2/log,/d1/log"
    assert config.read_only_commit_log_store_paths == "/d0/log"
