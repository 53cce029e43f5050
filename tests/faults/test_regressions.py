"""Mistakes that crash states and turned bits have found, each in its simplest form."""

from __future__ import annotations

import errno
import struct
import threading

import pytest

from faults.place import SMALL, Place, body_of
from penstock import Message, open_store
from penstock.errors import DiskFull, FlushFailed
from penstock.files.memory import MemoryStorage
from penstock.store.consumequeue import BLANK_UNIT

# -- queues ----------------------------------------------------------------------------------------


def test_queue_file_left_empty_before_a_later_one_is_made_again() -> None:
    place = Place()
    place.open()
    for number in range(35):
        place.put(number)
    place.store.dispatch()
    place.kill()
    files = place.files("consumequeue/T/0")
    assert len(files) == 4
    place.storage.truncate(files[1], 0)
    place.open()
    assert place.numbers() == list(range(35))


def test_queue_that_lost_its_first_file_in_a_crash_begins_again() -> None:
    """The names of new files reach the disk in any order: the second may be there without the first."""
    place = Place()
    place.open()
    for number in range(15):
        place.put(number)
    place.store.dispatch()
    place.kill()
    first, _ = place.files("consumequeue/T/0")
    place.storage.unlink(first)
    place.open()
    assert place.numbers() == list(range(15))
    assert place.put(15).queue_offset == 15


def test_units_behind_a_lost_page_are_not_taken_for_the_queues_own() -> None:
    """A page of units was lost, the one behind it was not: stale, once the queue has grown up to it."""
    config = SMALL.replace(mapped_file_size_consume_queue=20 * 1000, mapped_file_size_commit_log=256 << 10)
    place = Place(config=config)
    place.open()
    for number in range(600):
        place.put(number)
    place.store.dispatch()
    place.kill()
    (path,) = place.files("consumequeue/T/0")
    place.storage.overwrite(path, 4096, bytes(4096))
    place.storage.overwrite(path, 8200, struct.pack(">qiq", 0, 172, 0) * 50)
    place.open()
    assert place.numbers() == list(range(600))
    place.put(600)
    place.store.dispatch()
    place.reopen_after_kill()
    assert place.numbers() == list(range(601))


def test_blanks_hide_no_message_before_them_when_the_head_of_the_log_goes() -> None:
    """Blanks point to offset 0: a search that takes them for old messages goes past young ones."""
    place = Place()
    place.open()
    results = [place.put(number, 1000) for number in range(40)]
    place.kill()
    size = SMALL.mapped_file_size_commit_log
    last_file = results[-1].physical_offset // size * size
    first_kept = next(n for n, r in enumerate(results) if r.physical_offset >= last_file)
    for number in (first_kept + 1, first_kept + 2):
        place.overwrite_log(results[number].physical_offset + 100, b"garbage")
    store = place.open()
    assert store.report.blanks_filled == 2
    place.clock.advance(80 * 3_600_000)
    assert store.clean() > 0
    expected = [n for n in range(first_kept, 40) if n not in (first_kept + 1, first_kept + 2)]
    assert place.numbers() == expected
    assert store.min_offset("T", 0) == first_kept


def test_file_that_ends_with_blanks_is_not_expired_before_its_messages() -> None:
    place = Place()
    place.open()
    for number in range(25):
        place.put(number)
    place.store.dispatch()
    first = place.files("consumequeue/T/0")[0]
    place.storage.overwrite(first, 9 * 20, BLANK_UNIT)
    queue = place.store._queues.find("T", 0)
    assert queue.delete_expired(1) == 0


def test_unit_with_a_damaged_size_keeps_no_later_record_out() -> None:
    place = Place()
    place.open()
    results = [place.put(number) for number in range(8)]
    place.store.dispatch()
    place.store.close()
    (path,) = place.files("consumequeue/T/0")
    place.storage.overwrite(path, 7 * 20 + 8, struct.pack(">i", results[7].size + 4096))
    place.open()
    for number in range(8, 12):
        place.put(number)
    place.store.dispatch()
    assert [n for n in place.numbers() if n != 7] == [*range(7), *range(8, 12)]
    place.reopen_after_kill()
    assert [n for n in place.numbers() if n != 7] == [*range(7), *range(8, 12)]


@pytest.mark.parametrize("keep", [(), ("penstock.position",)], ids=["as ours", "as RocketMQ's"])
def test_unit_with_a_damaged_offset_does_not_cut_the_log(keep: tuple[str, ...]) -> None:
    """Its record, met again, finds its place taken: by nothing that is a record."""
    place = Place()
    place.open()
    for number in range(8):
        place.put(number)
    place.store.dispatch()
    place.store.close()
    (path,) = place.files("consumequeue/T/0")
    place.storage.overwrite(path, 7 * 20, struct.pack(">q", 1))
    for name in keep:
        place.storage.unlink(place.path(name))
    end = place.storage.stat(place.files("commitlog")[0]).size
    store = place.open()
    assert store.report.cut_bytes == 0 and store.max_physical_offset < end
    assert [n for n in place.numbers() if n != 7] == list(range(7))
    assert place.put(8).queue_offset == 8


def test_damaged_unit_hides_only_its_own_message() -> None:
    place = Place()
    place.open()
    for number in range(8):
        place.put(number)
    place.store.dispatch()
    (path,) = place.files("consumequeue/T/0")
    for physical in (1 << 40, 7, -5):
        place.storage.overwrite(path, 2 * 20, struct.pack(">q", physical))
        assert place.numbers() == [0, 1, 3, 4, 5, 6, 7]


def test_damaged_record_stops_no_reader() -> None:
    place = Place()
    place.open()
    results = [place.put(number, 100) for number in range(8)]
    place.store.dispatch()
    for at, data in ((0, b"\0\0\7\7"), (4, b"\xff"), (28, b"\1"), (84, b"\0\0\0\1")):
        path, start = place.log_file(results[2].physical_offset)
        good = place.storage.pread(path, start, results[2].size)
        place.storage.overwrite(path, start + at, data)
        assert place.numbers() == [0, 1, 3, 4, 5, 6, 7], f"damaged at {at}"
        assert [m.body for m in place.store.follow("T", 0, wait=False)][2] == body_of(3, 100)
        place.storage.overwrite(path, start, good)


# -- index -----------------------------------------------------------------------------------------


def test_entries_put_after_a_flush_of_the_index_are_synced_by_the_next() -> None:
    place = Place()
    place.open()
    for number in range(3):
        place.put(number)
        place.store.dispatch()
        place.store.sync_positions()
    for image in place.storage.crash_states(4):
        after = Place(storage=image, clock=place.clock)
        assert after.open().report.records == 0
        assert [after.found(number) for number in range(3)] == [[0], [1], [2]]
        after.kill()


@pytest.mark.parametrize("size", [0, 500])
def test_index_file_that_was_being_made_is_no_reason_to_refuse_or_rebuild(size: int) -> None:
    place = Place()
    place.open()
    for number in range(5):
        place.put(number)
    place.store.dispatch()
    place.store.sync_positions()
    end = place.store.max_physical_offset
    place.kill()
    place.storage.create_file(place.path("index", "99990101000000000"), bytes(size))
    store = place.open()
    assert store.report.start_offset == end
    assert [place.found(number) for number in range(5)] == [[number] for number in range(5)]
    assert len(place.files("index")) == 1


def test_cut_log_takes_its_index_entries_with_it() -> None:
    """The last record of a closed store is damaged and cut: the next one at its place must be findable."""
    place = Place()
    place.open()
    results = [place.put(number) for number in range(5)]
    place.store.close()
    place.overwrite_log(results[4].physical_offset, b"\0\0\0\5")
    place.open()
    assert place.numbers() == [0, 1, 2, 3]
    assert place.store.query_offsets("T", "k4", 64, 0, 1 << 60) == []
    assert place.put(9).physical_offset == results[4].physical_offset
    place.store.dispatch()
    assert place.found(9) == [9]


def test_index_switched_on_later_covers_what_was_put_without() -> None:
    place = Place()
    place.open(SMALL.replace(message_index_enable=False))
    place.put(0)
    place.store.close()
    place.open()
    place.put(1)
    place.store.dispatch()
    assert place.found(0) == [0] and place.found(1) == [1]


# -- the log ---------------------------------------------------------------------------------------


def test_idle_session_leaves_a_position_that_is_believed() -> None:
    place = Place()
    place.open()
    for number in range(5):
        place.put(number)
    place.store.close()
    end = 0
    for _ in range(3):
        store = place.open()
        end = store.max_physical_offset
        assert store.report.clean and store.report.start_offset == end and store.report.records == 0
        store.close()
    assert end > 0


def test_known_records_behind_damage_are_no_leftovers() -> None:
    """The walk meets damage before records whose units are there: they stay."""
    place = Place()
    place.open()
    results = [place.put(number, 100) for number in range(8)]
    place.store.dispatch()
    place.store.close()
    place.storage.unlink(place.path("penstock.position"))
    place.overwrite_log(results[3].physical_offset, b"\xff" * 100)
    place.open()
    assert [n for n in place.numbers() if n != 3] == [0, 1, 2, 4, 5, 6, 7]


def test_damaged_blank_does_not_end_the_log() -> None:
    place = Place()
    place.open()
    results = [place.put(number, 1500) for number in range(25)]
    size = SMALL.mapped_file_size_commit_log
    last = max(n for n, r in enumerate(results) if r.physical_offset < size)
    blank = results[last].physical_offset + results[last].size
    for damage in (b"\0\0\0\1", b"\0\0\0\0\0\0\0\0", b"\xff" * 8):
        place.kill()
        place.storage.unlink(place.path("penstock.position"))
        place.overwrite_log(blank, damage)
        store = place.open()
        assert place.numbers() == list(range(25)), damage
        assert store.report.damage
        again = place.reopen_after_kill()
        assert not again.report.damage and not again.report.faults


def test_long_damage_is_covered_by_records_that_every_reader_takes() -> None:
    config = SMALL.replace(mapped_file_size_commit_log=8 << 20, max_message_size=1 << 20)
    place = Place(config=config)
    place.open()
    results = [place.put(number, 600_000) for number in range(10)]
    place.kill()
    begin, end = results[2].physical_offset, results[8].physical_offset
    place.overwrite_log(begin, b"\x01" * (end - begin))
    place.open()
    assert place.numbers() == [0, 1, 8, 9]
    covers = []
    at = begin
    while at < end:
        record = place.store.lookup(at)
        assert record.topic == "PENSTOCK_FILLER"
        covers.append(record.size)
        at += record.size
    assert at == end and max(covers) <= 2 << 20


def test_many_leftovers_behind_damage_are_searched_once() -> None:
    """Thousands of records that continue nothing: each look goes on where the last one ended."""
    config = SMALL.replace(mapped_file_size_commit_log=1 << 20)
    place = Place(config=config)
    place.open()
    for number in range(3000):
        place.put(number)
    place.store.dispatch()
    place.kill()
    reads = 0
    pread = place.storage.pread

    def counting(path: object, position: int, count: int) -> bytes:
        nonlocal reads
        reads += count > 1 << 16
        return pread(path, position, count)  # type: ignore[arg-type]

    place.storage.pread = counting  # type: ignore[method-assign]
    path, _ = place.log_file(0)
    place.storage.overwrite(path, 0, b"\xff" * 8)
    place.open()
    assert place.numbers() == list(range(1, 3000))
    assert reads < 200


# -- the disk --------------------------------------------------------------------------------------


def test_free_space_does_not_undo_a_failed_sync() -> None:
    place = Place()
    place.open()
    place.put(0)
    place.storage.fail("sync", errno.EIO, path_glob="*commitlog*")
    with pytest.raises(FlushFailed):
        place.store.put(place.message(1))
    place.storage.heal()
    place.storage.capacity = int(place.storage.used / 0.95)
    place.store.upkeep()
    place.storage.capacity = None
    place.store.upkeep()
    assert [r.status for r in place.store.put_many([place.message(2)])] == ["SERVICE_NOT_AVAILABLE"]


def test_opening_that_fails_leaves_no_thread_and_no_lock_behind() -> None:
    storage = MemoryStorage()
    before = threading.active_count()
    storage.fail("create", errno.ENOSPC, times=1, path_glob="*penstock.position*")
    with pytest.raises(DiskFull):
        open_store("/store", config=SMALL, storage=storage)
    assert threading.active_count() == before
    with open_store("/store", config=SMALL, storage=storage) as store:
        assert store.put(Message("T", b"fine")).ok


def test_removed_log_files_do_not_fail_the_next_flush() -> None:
    place = Place(config=SMALL.replace(flush_disk_type="async"))
    place.open()
    for number in range(40):
        place.put(number, 1000)
    place.store.dispatch()
    place.clock.advance(80 * 3_600_000)
    assert place.store.clean() > 0
    place.store.flush()
    assert place.store.flushed_where == place.store.max_physical_offset


@pytest.mark.parametrize(("at", "form", "victim", "displaced"), [(12, ">i", 6, 7), (20, ">q", 8, None)])
def test_record_that_claims_a_taken_place_does_not_end_the_log(
    at: int, form: str, victim: int, displaced: int | None
) -> None:
    """No CRC covers queue id and queue offset: damaged, the record looks like a leftover, or makes another
    one look so. What follows is dispatched, and nothing that is whole is written over.
    """
    place = Place()
    place.open()
    results = [place.put(number, queue_id=number % 2) for number in range(12)]
    place.kill()
    place.overwrite_log(results[victim].physical_offset + at, struct.pack(form, 1))
    store = place.open()
    there = sorted(place.numbers(queue_id=0) + place.numbers(queue_id=1))
    assert [n for n in range(12) if n not in there and n != victim] == ([displaced] if displaced else [])
    if displaced:
        assert store.lookup(results[displaced].physical_offset).body == body_of(displaced)
    assert store.report.damage


def test_last_record_whose_place_another_claims_is_kept() -> None:
    """The damaged one comes first and takes the place; the last is whole and known: it is not cut."""
    place = Place()
    place.open()
    results = [place.put(number, queue_id=number % 2) for number in range(12)]
    place.store.dispatch()
    place.kill()
    place.overwrite_log(results[10].physical_offset + 12, struct.pack(">i", 1))
    store = place.open()
    assert store.lookup(results[11].physical_offset).body == body_of(11)
    assert place.put(12).physical_offset > results[11].physical_offset


# -- what records borrow ---------------------------------------------------------------------------


def test_a_call_with_more_hosts_than_are_remembered_gives_each_its_own_message_id() -> None:
    """The encoder forgets the hosts it knows when they are too many, while records still point to them."""
    hosts = [(number >> 8, number & 255) for number in range(9000)]
    with open_store("/store", config=SMALL, storage=MemoryStorage()) as store:
        messages = [Message("T", b"x", store_host=f"10.1.{high}.{low}:10911") for high, low in hosts]
        results = store.put_many(messages)
        del messages
        [bytes(12) for _ in range(20_000)]  # memory that was given back too early is somebody else's now
        for (high, low), result in zip(hosts, results, strict=True):
            assert result.message_id is not None
            assert result.message_id.startswith(f"0A01{high:02X}{low:02X}00002A9F")
