"""Each kind of damage is located: the file, the position, what was found there. Fault S27 of the list."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from golden_store import GoldenStore, unpack
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault
from penstock.store.scan import LogScanner
from penstock.store.verify import VerifyReport, verify_store

from .damage import flip, overwrite


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], GoldenStore]:
    return lambda case: unpack(case, tmp_path)


def check(store: GoldenStore) -> VerifyReport:
    report = verify_store(str(store.path))
    assert not report.healthy
    return report


def only(report: VerifyReport) -> Fault:
    (fault,) = report.faults
    return fault


def messages(store: GoldenStore) -> list[int]:
    return [m.physical_offset for m in LogScanner(StoreDirectory(None, str(store.path))).messages()]


Golden = Callable[[str], GoldenStore]


def test_s27_a_flipped_bit_in_a_body_is_located_and_contained(golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    hurt = next(o for o in before if 70_000 < o < 100_000)
    flip(store.path / "commitlog" / "00000000000000065536", hurt - 65536 + 90)
    fault = only(check(store))
    assert fault.kind == "record-crc"
    assert (fault.file, fault.physical_offset) == (str(store.path / "commitlog/00000000000000065536"), hurt)
    assert fault.offset == hurt - 65536
    assert fault.length == before[before.index(hurt) + 1] - hurt
    assert messages(store) == [offset for offset in before if offset != hurt]


@pytest.mark.parametrize(
    ("field", "kind"), [(0, "record-length"), (4, "record-magic"), (30, "record-offset")]
)
def test_a_flipped_bit_in_a_header_is_located(field: int, kind: str, golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    flip(store.path / "commitlog" / "00000000000000000000", before[7] + field, 0x10)
    fault = only(check(store))
    assert (fault.kind in (kind, "record-short"), fault.physical_offset) == (True, before[7])
    assert messages(store) == before[:7] + before[8:]


def test_damage_at_the_end_of_a_file_goes_on_in_the_next(golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    last = max(o for o in before if o < 65536)
    overwrite(store.path / "commitlog" / "00000000000000000000", last, b"\xee" * (65536 - last))
    fault = only(check(store))
    assert (fault.kind, fault.physical_offset, fault.length) == ("record-magic", last, 65536 - last)
    assert messages(store) == [offset for offset in before if offset != last]


def test_s29_zeros_in_the_middle_do_not_hide_what_follows(golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    begin, end = before[20], before[40]
    overwrite(store.path / "commitlog" / "00000000000000000000", begin, bytes(end - begin))
    fault = only(check(store))
    assert (fault.kind, fault.physical_offset, fault.length) == ("record-zero", begin, end - begin)
    assert messages(store) == before[:20] + before[40:]


def test_the_last_record_of_a_closed_store_is_checked_too(golden: Golden) -> None:
    store = golden("basic")
    last = messages(store)[-1]
    file = sorted((store.path / "commitlog").iterdir())[last // 65536]
    flip(file, last % 65536 + 4)
    report = check(store)
    assert report.faults[0].physical_offset == last
    assert report.log_end == last


def test_a_blank_that_does_not_reach_the_end_is_located(golden: Golden) -> None:
    store = golden("basic")
    file = store.path / "commitlog" / "00000000000000000000"
    at = file.read_bytes().index(b"\xcb\xd4\x31\x94") - 4
    flip(file, at + 3)
    fault = only(check(store))
    assert (fault.kind, fault.offset) == ("record-blank", at)


def test_records_lost_to_damage_are_counted(golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    overwrite(store.path / "commitlog" / "00000000000000000000", before[3], b"\x01" * (before[8] - before[3]))
    report = check(store)
    assert len(report.faults) == 1
    assert report.lost_records == 5


def test_a_queue_unit_that_points_elsewhere_is_located(golden: Golden) -> None:
    store = golden("basic")
    file = store.path / "consumequeue" / "many" / "0" / "00000000000000006000"
    flip(file, 47)
    fault = only(check(store))
    assert (fault.kind, fault.file, fault.offset) == ("unit", str(file), 40)


@pytest.mark.parametrize("position", [8, 19])
def test_size_and_tags_of_a_unit_are_checked(position: int, golden: Golden) -> None:
    store = golden("basic")
    file = store.path / "consumequeue" / "TopicTest" / "0" / "00000000000000000000"
    flip(file, 100 + position)
    assert (only(check(store)).file, only(check(store)).offset) == (str(file), 100)


def test_a_batch_unit_is_checked(golden: Golden) -> None:
    store = golden("batches")
    file = sorted((store.path / "batchconsumequeue").rglob("0*"))[-1]
    assert file.is_file()
    flip(file, 46 + 30)
    report = check(store)
    assert {(fault.kind, fault.file) for fault in report.faults} == {("unit", str(file))}
    assert report.faults[0].offset == 46


def test_an_extension_unit_is_checked(golden: Golden) -> None:
    store = golden("queue-ext")
    file = store.path / "consumequeue_ext" / "ext_one" / "0" / "00000000000000000000"
    flip(file, 12)
    fault = only(check(store))
    assert (fault.kind, fault.file, fault.offset) == ("ext-unit", str(file), 0)


def test_the_unit_of_a_light_queue_is_checked(golden: Golden) -> None:
    store = golden("lmq")
    file = next(
        p for p in sorted((store.path / "consumequeue").rglob("0*")) if "%LMQ%" in str(p) and p.is_file()
    )
    flip(file, 5)
    assert only(check(store)).file == str(file)


@pytest.mark.parametrize(
    ("place", "what"), [("hash", 0), ("offset", 9), ("seconds", 15), ("previous", 19), ("slot", None)]
)
def test_every_part_of_an_index_chain_is_checked(place: str, what: int | None, golden: Golden) -> None:
    store = golden("index-rolled")
    file = sorted((store.path / "index").iterdir())[1]
    entries = 40 + 4 * 64
    position = 40 + 4 * 5 + 3 if what is None else entries + 20 * 100 + what
    flip(file, position, 1 if place != "hash" else 64)
    report = check(store)
    assert {fault.file for fault in report.faults} == {str(file)}
    expected = position - 3 if what is None else entries + 20 * 100
    assert expected in {fault.offset for fault in report.faults}


@pytest.mark.parametrize("field", [16, 24, 32, 36])
def test_the_header_of_an_index_file_is_checked(field: int, golden: Golden) -> None:
    store = golden("index-rolled")
    file = sorted((store.path / "index").iterdir())[0]
    flip(file, field + 2, 4)
    assert {fault.file for fault in check(store).faults} == {str(file)}


def test_an_index_that_is_a_ring_is_told_of_and_ends(golden: Golden) -> None:
    store = golden("index-rolled")
    file = sorted((store.path / "index").iterdir())[0]
    overwrite(file, 40 + 4 * 64 + 20 * 10 + 16, struct.pack(">i", 10))
    assert check(store).faults[0].offset == 40 + 4 * 64 + 20 * 10


def test_a_checkpoint_from_the_future_is_implausible(golden: Golden) -> None:
    store = golden("basic")
    overwrite(store.path / "checkpoint", 8, struct.pack(">q", 2**60))
    fault = only(check(store))
    assert (fault.kind, fault.offset) == ("checkpoint", 8)


def test_s16_a_torn_settings_file_is_named_and_its_backup_serves(golden: Golden) -> None:
    store = golden("broker")
    file = store.path / "config" / "consumerOffset.json"
    with file.open("r+b") as opened:
        opened.truncate(100)
    report = verify_store(str(store.path))
    assert report.healthy
    assert [(note.kind, note.file) for note in report.notes] == [("config", str(file))]
    file.with_name("consumerOffset.json.bak").unlink()
    fault = only(check(store))
    assert (fault.kind, fault.file) == ("config", str(file))


def test_a_log_full_of_damage_is_walked_to_its_end(golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    for offset in before[:-1:2]:
        flip(store.path / "commitlog" / f"{offset // 65536 * 65536:020d}", offset % 65536 + 5)
    report = check(store)
    assert report.damaged_ranges == len(before[:-1:2])
    assert messages(store) == before[1::2]
    assert report.lost_records == len(before[:-1:2])


def test_a_file_of_the_wrong_size_is_named(golden: Golden) -> None:
    store = golden("basic")
    file = store.path / "commitlog" / "00000000000000131072"
    with file.open("r+b") as opened:
        opened.truncate(40_000)
    report = check(store)
    assert ("file-size", str(file)) in {(fault.kind, fault.file) for fault in report.faults}
    assert any(fault.file == str(file) and fault.kind.startswith("record-") for fault in report.faults)
    assert report.records > 400


def test_a_queue_file_of_the_wrong_size_is_named(golden: Golden) -> None:
    store = golden("basic")
    file = store.path / "consumequeue" / "x" / "1" / "00000000000000000000"
    with file.open("r+b") as opened:
        opened.truncate(30)
    assert str(file) in {fault.file for fault in check(store).faults}


def test_a_missing_file_inside_the_log_is_named(golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    (store.path / "commitlog" / "00000000000000065536").unlink()
    report = check(store)
    assert only(report).kind == "missing-file"
    assert Path(only(report).file).name == "00000000000000065536"
    assert messages(store) == [o for o in before if not 65536 <= o < 131072]


def test_foreign_files_are_named(golden: Golden) -> None:
    store = golden("basic")
    places = ["commitlog/notes.txt", "consumequeue/x/0/core", "consumequeue/x/file", "index/readme"]
    for place in places:
        (store.path / place).write_text("hello")
    report = check(store)
    assert sorted(fault.file for fault in report.faults) == sorted(
        str(store.path / place) for place in places
    )
    assert {fault.kind for fault in report.faults} == {"foreign-file"}


def test_an_empty_last_file_is_no_fault(golden: Golden) -> None:
    store = golden("basic")
    (store.path / "commitlog" / "00000000000000262144").touch()
    assert verify_store(str(store.path)).healthy


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0x0FFFFFFF, 0x0FFFFFF0, 65535, 90, 0, 0x80000000])
def test_s25_hostile_lengths_do_not_allocate(length: int, golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    file = store.path / "commitlog" / "00000000000000000000"
    overwrite(file, before[5], struct.pack(">I", length))
    second = next(n for n in range(9, 30) if file.read_bytes()[before[n] + 87])
    overwrite(file, before[second] + 84, struct.pack(">I", length))
    report = check(store)
    assert {fault.physical_offset for fault in report.faults} == {before[5], before[second]}
    assert messages(store) == [o for n, o in enumerate(before) if n not in (5, second)]


def test_s03_an_older_record_behind_the_tail_is_not_resurrected(golden: Golden) -> None:
    store = golden("basic")
    before = messages(store)
    end = verify_store(str(store.path)).log_end
    file = store.path / "commitlog" / "00000000000000196608"
    data = file.read_bytes()
    first = data[: int.from_bytes(data[:4], "big")]
    # A record of the right place and CRC, but stored long before what the log ends with.
    stale = bytearray(first)
    place = end + 100
    stale[28:36] = place.to_bytes(8, "big")
    overwrite(file, end - 196608, b"\x07" * 100 + bytes(stale))
    assert messages(store) == before
    report = check(store)
    assert report.log_end == end


def test_what_was_found_is_bounded_and_counted(golden: Golden) -> None:
    store = golden("basic")
    file = store.path / "consumequeue" / "many" / "0" / "00000000000000000000"
    for unit in range(100):
        flip(file, unit * 20 + 7)
    report = verify_store(str(store.path), limit=10)
    assert (len(report.faults), report.fault_count) == (10, 100)


@pytest.mark.parametrize(
    "case", ["basic", "batches", "queue-ext", "index-rolled", "lmq", "transactions", "broker"]
)
def test_random_damage_never_raises(case: str, golden: Golden) -> None:
    store = golden(case)
    rng = random.Random(case)
    files = [p for p in sorted(store.path.rglob("*")) if p.is_file() and p.stat().st_size]
    found = 0
    for _ in range(40):
        file = rng.choice(files)
        size = file.stat().st_size
        kind = rng.randrange(4)
        before = file.read_bytes()
        at = rng.randrange(min(size, len(before.rstrip(b"\0")) + 1))
        if kind == 0:
            flip(file, at, 1 << rng.randrange(8))
        elif kind == 1:
            overwrite(file, at, rng.randbytes(min(size - at, 64)))
        elif kind == 2:
            overwrite(file, at, bytes(min(size - at, 512)))
        else:
            with file.open("r+b") as opened:
                opened.truncate(at)
        found += not verify_store(str(store.path)).healthy
        file.write_bytes(before)
    assert found > 10
    assert verify_store(str(store.path)).healthy
