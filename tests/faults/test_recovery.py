"""What opening makes of a store whose parts do not agree."""

from __future__ import annotations

import struct

import pytest

from faults.place import SMALL, Place, body_of
from penstock import Message
from penstock.store.checkpoint import StoreCheckpoint

FILES = 3


def fill_files(place: Place, files: int = FILES, size: int = 1500) -> list[int]:
    """Put until the log has so many files; the numbers that were put."""
    numbers: list[int] = []
    while len(place.files("commitlog")) < files:
        place.put(len(numbers), size)
        numbers.append(len(numbers))
    return numbers


# -- S5, S6: between log, queue, index and checkpoint ----------------------------------------------


@pytest.mark.parametrize("dispatched", [0, 1, 10, 20, None])
def test_s05_records_behind_the_queues_are_dispatched_again_over_file_rolls(dispatched: int | None) -> None:
    place = Place()
    place.open()
    numbers = []
    while len(place.files("commitlog")) < 4:
        place.put(len(numbers), 1500)
        numbers.append(len(numbers))
        if dispatched is not None and len(numbers) == dispatched:
            place.store.dispatch()
            place.store.sync_positions()
    if dispatched is None:
        place.store.dispatch()
    report = place.reopen_after_kill().report
    assert place.numbers() == numbers
    assert [place.found(number) for number in numbers] == [[number] for number in numbers]
    assert not report.clean and not report.damage and report.records >= len(numbers) - (dispatched or 0)


def test_s06_checkpoint_ahead_of_the_queues_loses_nothing() -> None:
    """The index was synced when it rolled and the checkpoint says so; the queues never were."""
    place = Place()
    place.open()
    numbers = list(range(60))
    for number in numbers:
        place.put(number)
    place.store.dispatch()
    for path in place.files("index"):
        place.store._parts.index.files[place.files("index").index(path)].flush()
    checkpoint = StoreCheckpoint(place.storage, place.path())
    checkpoint.load()
    future = place.clock.now_ms() + 1_000_000
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = future
    checkpoint.index_msg_timestamp = future
    checkpoint.logics_physical_offset = checkpoint.confirm_phy_offset = place.store.max_physical_offset - 1
    checkpoint.flush()
    dropped = next(iter(place.storage.crash_states(limit=1)))
    after = Place(storage=dropped, clock=place.clock)
    after.open()
    assert after.numbers() == numbers
    assert [after.found(number) for number in numbers] == [[number] for number in numbers]


# -- S7, S8: where the log is cut ------------------------------------------------------------------


def test_s07_nothing_refers_to_records_that_were_cut() -> None:
    place = Place()
    place.open()
    results = [place.put(number) for number in range(10)]
    place.store.dispatch()
    place.store.consumer_offsets.commit("group", "T", 0, 10)
    place.store.consumer_offsets.persist()
    place.store.sync_positions()
    place.kill()
    cut = results[6].physical_offset
    place.overwrite_log(cut, bytes(SMALL.mapped_file_size_commit_log - cut))
    store = place.open()
    assert place.numbers() == [0, 1, 2, 3, 4, 5]
    assert store.max_physical_offset == cut and store.report.end_offset == cut
    assert store.max_offset("T", 0) == 6 and store.queue_unit("T", 0, 6) is None
    assert store.consumer_offsets.query("group", "T", 0) == 6
    assert all(place.found(number) == [] for number in range(6, 10))
    assert all(not store.query_offsets("T", f"k{number}", 64, 0, 1 << 60) for number in range(6, 10))
    assert place.put(20).queue_offset == 6
    store.dispatch()
    assert place.numbers() == [0, 1, 2, 3, 4, 5, 20] and place.found(20) == [20]
    place.reopen_after_kill()
    assert place.numbers() == [0, 1, 2, 3, 4, 5, 20] and place.found(20) == [20]


def test_s07_queue_extensions_are_cut_with_their_records() -> None:
    place = Place(
        config=SMALL.replace(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
    )
    place.open()
    results = [place.put(number) for number in range(10)]
    place.store.dispatch()
    place.store.sync_positions()
    place.kill()
    cut = results[4].physical_offset
    place.overwrite_log(cut, bytes(SMALL.mapped_file_size_commit_log - cut))
    place.open()
    assert place.numbers() == [0, 1, 2, 3]
    for number in range(20, 26):
        place.put(number)
    place.store.dispatch()
    tagged = place.store.get("T", 0, 0, tags="tag")
    assert [int(m.body.split()[1]) for m in tagged] == [0, 1, 2, 3, 20, 21, 22, 23, 24, 25]
    assert len(place.store.get("T", 0, 0, tags="other")) == 0
    place.reopen_after_kill()
    assert [int(m.body.split()[1]) for m in place.store.get("T", 0, 0, tags="tag")][-1] == 25


@pytest.mark.parametrize("kept", range(0, 30, 3))
@pytest.mark.parametrize("inside", [0, 1, 60])
def test_s08_log_is_cut_at_exactly_the_first_record_that_is_not_whole(kept: int, inside: int) -> None:
    """Cut at a record's first byte, behind it, and in its middle: as many records stay as are whole."""
    place = Place()
    place.open()
    results = [place.put(number, 1000) for number in range(30)]
    place.store.dispatch()
    place.store.sync_positions()
    place.kill()
    place.storage.unlink(place.path("penstock.position"))
    place_of_cut = results[kept].physical_offset + inside
    file_size = SMALL.mapped_file_size_commit_log
    for path in place.files("commitlog"):
        begin = int(path.rsplit("/", 1)[1])
        if begin + file_size > place_of_cut:
            start = max(0, place_of_cut - begin)
            place.storage.overwrite(path, start, bytes(file_size - start))
    store = place.open()
    assert place.numbers() == list(range(kept))
    assert store.max_offset("T", 0) == kept
    end = results[kept - 1].physical_offset + results[kept - 1].size if kept else 0
    assert store.report.end_offset <= results[kept].physical_offset and store.report.end_offset >= end
    assert place.put(99).queue_offset == kept
    place.store.dispatch()
    assert place.numbers() == [*range(kept), 99]


# -- S9: the index ---------------------------------------------------------------------------------


def test_s09_index_file_that_is_not_full_survives_a_kill() -> None:
    place = Place()
    place.open()
    for number in range(8):
        place.put(number)
    place.store.dispatch()
    place.store.sync_positions()
    end = place.store.max_physical_offset
    for number in range(8, 12):
        place.put(number)
    dropped = next(iter(place.storage.crash_states(limit=1)))
    after = Place(storage=dropped, clock=place.clock)
    store = after.open()
    assert store.report.start_offset == end, "what was synced is not read again"
    assert store.report.index.startswith("cut to 24 synced entries")
    assert [after.found(number) for number in range(12)] == [[number] for number in range(12)]


@pytest.mark.parametrize("damage", ["removed", "short", "emptied", "garbage"])
def test_s09_keys_of_a_lost_index_file_come_back_from_the_log(damage: str) -> None:
    place = Place()
    place.open()
    numbers = list(range(60))
    for number in numbers:
        place.put(number)
    place.store.close()
    files = place.files("index")
    assert len(files) > 2
    victim = files[1]
    size = place.storage.stat(victim).size
    if damage == "removed":
        place.storage.unlink(victim)
    elif damage == "short":
        place.storage.truncate(victim, size - 100)
    elif damage == "emptied":
        place.storage.truncate(victim, 0)
    else:
        place.storage.overwrite(victim, 0, b"\xff" * size)
    place.open()
    assert place.numbers() == numbers
    assert [place.found(number) for number in numbers] == [[number] for number in numbers]


# -- S15, S18: the head of the log -----------------------------------------------------------------


def clean_head(place: Place) -> int:
    """Remove all log files but the last; the first offset that is left."""
    place.clock.advance(80 * 3_600_000)
    assert place.store.clean() > 0
    minimum: int = place.store.min_physical_offset
    assert minimum > 0
    return minimum


def test_s15_consumers_see_the_deletion_of_the_head() -> None:
    place = Place()
    place.open()
    numbers = fill_files(place)
    place.store.dispatch()
    place.store.consumer_offsets.commit("group", "T", 0, 2)
    minimum = clean_head(place)
    kept = [n for n in numbers if place.store.queue_unit("T", 0, n) is not None]
    assert kept and kept[0] > 0 and place.store.min_offset("T", 0) == kept[0]
    answer = place.store.get("T", 0, 2)
    assert answer.status == "OFFSET_TOO_SMALL" and answer.next_begin_offset == kept[0]
    assert place.store.get("T", 0, kept[0]).status == "FOUND"
    assert place.numbers() == kept
    assert place.found(0) == [] and place.found(kept[0]) == [kept[0]]
    assert place.store.lookup(0) is None
    reader = place.store.reader("T", "group", wait=False)
    assert [int(m.body.split()[1]) for m in reader] == kept
    place.put(100)
    place.store.dispatch()
    assert place.numbers() == [*kept, 100]
    store = place.reopen_after_kill()
    assert store.min_physical_offset == minimum and place.numbers() == [*kept, 100]
    assert store.min_offset("T", 0) == kept[0]


@pytest.mark.parametrize("missing", [(), ("penstock.position",), ("penstock.position", "checkpoint")])
@pytest.mark.parametrize("clean", [True, False])
def test_s18_offsets_go_on_where_they_were_whatever_is_missing(missing: tuple[str, ...], clean: bool) -> None:
    place = Place()
    place.open()
    numbers = fill_files(place)
    place.store.dispatch()
    clean_head(place)
    kept = place.numbers()
    if clean:
        place.store.close()
    else:
        place.kill()
    for name in missing:
        place.storage.unlink(place.path(name))
    place.open()
    assert place.numbers() == kept
    assert place.store.min_offset("T", 0) == kept[0]
    assert place.put(500).queue_offset == len(numbers)
    place.store.dispatch()
    assert place.numbers() == [*kept, 500]


def test_s18_empty_last_log_file_wipes_no_queue() -> None:
    place = Place()
    place.open()
    numbers = fill_files(place)
    place.store.dispatch()
    place.kill()
    next_file = len(place.files("commitlog")) * SMALL.mapped_file_size_commit_log
    place.storage.create_file(place.path("commitlog", f"{next_file:020d}"))
    place.open()
    assert place.numbers() == numbers


def test_s18_all_queues_lost_are_built_again_from_the_log() -> None:
    place = Place()
    place.open()
    numbers = fill_files(place)
    place.store.dispatch()
    place.store.close()
    for path in place.files("consumequeue/T/0"):
        place.storage.unlink(path)
    store = place.open()
    assert place.numbers() == numbers
    assert store.report.faults, "a queue that lost its files is worth a word"


def test_log_that_is_gone_takes_queues_and_index_with_it() -> None:
    place = Place()
    place.open()
    fill_files(place)
    place.store.close()
    for path in place.files("commitlog"):
        place.storage.unlink(path)
    store = place.open()
    assert store.queues() == [] and place.files("index") == []
    assert place.put(0).queue_offset == 0
    store.dispatch()
    assert place.numbers() == [0]


# -- S28: clocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-86_400_000, -5000, 86_400_000 * 365])
@pytest.mark.parametrize("synced", [True, False])
def test_s28_recovery_goes_by_position_and_not_by_the_clock(jump: int, synced: bool) -> None:
    place = Place()
    place.open()
    for number in range(20):
        place.put(number, 1000)
        if number == 9:
            place.store.dispatch()
            if synced:
                place.store.sync_positions()
            place.clock.set(place.clock.now_ms() + jump)
    store = place.reopen_after_kill()
    assert place.numbers() == list(range(20))
    assert not store.report.damage and not store.report.cut_bytes
    assert [place.found(number) for number in range(20)] == [[number] for number in range(20)]


def test_s28_checkpoint_from_the_future_or_the_past_decides_nothing() -> None:
    for stamp in (1, 1 << 50, -1):
        place = Place()
        place.open()
        for number in range(20):
            place.put(number, 1000)
        place.store.dispatch()
        place.kill()
        place.storage.overwrite(
            place.path("checkpoint"), 0, struct.pack(">qqqqqq", *([stamp] * 5), max(0, stamp))
        )
        place.open()
        assert place.numbers() == list(range(20))
        place.kill()


# -- what the report says --------------------------------------------------------------------------


def test_report_says_what_recovery_did() -> None:
    place = Place()
    assert place.open().report.clean
    results = [place.put(number) for number in range(4)]
    place.kill()
    end = results[-1].physical_offset + results[-1].size
    place.overwrite_log(end, b"half a record")
    report = place.open().report
    assert not report.clean and report.records == 4 and report.end_offset == end and report.cut_bytes == 13
    text = str(report)
    assert "abnormal" in text and "4 records" in text and "cut 13 bytes" in text
    place.store.close()
    assert "clean" in str(place.open().report)


def test_damaged_record_leaves_its_neighbours_alone() -> None:
    """Damage between acked records: their offsets stay, the lost one is a hole that readers step over."""
    place = Place()
    place.open()
    results = [place.put(number, 100) for number in range(10)]
    place.kill()
    place.overwrite_log(results[4].physical_offset + 100, b"garbage")
    store = place.open()
    assert place.numbers() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert store.report.damage[0].offset == results[4].physical_offset and store.report.blanks_filled == 1
    assert [m.queue_offset for m in store.get("T", 0, 4)] == [5, 6, 7, 8, 9]
    assert store.put(Message("T", body_of(10))).queue_offset == 10
    again = place.reopen_after_kill()
    assert place.numbers() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10] and not again.report.cut_bytes
