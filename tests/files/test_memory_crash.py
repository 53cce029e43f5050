"""The crash model itself: does it leave what a disk may leave, and nothing that a sync ruled out?"""

from __future__ import annotations

import errno
import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files import MemoryStorage
from penstock.files.crash import choices

PAGE = 4096


def contents(storage: MemoryStorage, path: str, **options: int) -> set[bytes | None]:
    return {
        image.read_file(path) if image.exists(path) else None
        for image in storage.crash_states(options.get("limit", 256))
    }


def durable_file(storage: MemoryStorage, path: str, data: bytes) -> None:
    storage.create_file(path, data)
    storage.sync_dir("/s")


def test_synced_file_in_a_synced_folder_survives_whole(memory: MemoryStorage) -> None:
    durable_file(memory, "/s/a", b"abc")
    assert contents(memory, "/s/a") == {b"abc"}


def test_name_in_an_unsynced_folder_may_be_missing(memory: MemoryStorage) -> None:
    memory.create_file("/s/a", b"abc")
    assert contents(memory, "/s/a") == {b"abc", None}


def test_unsynced_page_may_be_in_any_version_since_the_last_sync(memory: MemoryStorage) -> None:
    file = memory.open_sparse("/s/a", PAGE, create=True)
    file.write(0, b"1")
    file.sync()
    for version in (b"2", b"3", b"4"):
        file.write(0, version)
    assert {found[:1] for found in contents(memory, "/s/a") if found} == {b"1", b"2", b"3", b"4"}
    file.sync()
    assert {found[:1] for found in contents(memory, "/s/a") if found} == {b"4"}


def test_pages_are_kept_and_dropped_independently_of_their_order(memory: MemoryStorage) -> None:
    file = memory.open_sparse("/s/a", 2 * PAGE, create=True)
    file.sync()
    file.write(0, b"1")
    file.write(PAGE, b"2")
    found = {(body[0], body[PAGE]) for body in contents(memory, "/s/a") if body}
    assert found == {(0, 0), (0x31, 0), (0, 0x32), (0x31, 0x32)}


def test_size_of_an_unsynced_file_may_be_the_old_one(memory: MemoryStorage) -> None:
    file = memory.open_sparse("/s/a", PAGE, create=True)
    file.write(0, b"x")
    memory.sync_dir("/s")
    assert {None if body is None else len(body) for body in contents(memory, "/s/a")} == {0, PAGE}


def test_writes_into_a_mapping_are_seen_by_observing(memory: MemoryStorage) -> None:
    mapping = memory.open_mapping("/s/0", 2 * PAGE, create=True, reserve=True)
    mapping.append(b"first")
    memory.observe()
    mapping.append(b"second")
    states = {body[:11] for body in contents(memory, "/s/0") if body}
    assert states == {bytes(11), b"first" + bytes(6), b"firstsecond"}
    mapping.sync()
    assert {body[:11] for body in contents(memory, "/s/0") if body} == {b"firstsecond"}


def test_write_that_comes_while_a_sync_runs_is_not_durable(memory: MemoryStorage) -> None:
    mapping = memory.open_mapping("/s/0", PAGE, create=True, reserve=True)
    file = memory._names["/s/0"]
    mapping.append(b"before")
    file.before("sync")
    mapping.append(b"meanwhile")
    memory.observe()
    file.on_sync()
    states = {body[:15] for body in contents(memory, "/s/0") if body}
    assert states == {b"before" + bytes(9), b"beforemeanwhile"}


def test_failed_sync_makes_nothing_durable(memory: MemoryStorage) -> None:
    mapping = memory.open_mapping("/s/0", PAGE, create=True, reserve=True)
    mapping.append(b"abc")
    memory.fail("sync", errno.EIO)
    with pytest.raises(OSError):
        mapping.sync()
    assert {body[:3] for body in contents(memory, "/s/0") if body} == {bytes(3), b"abc"}


def test_unlinked_file_comes_back_until_the_folder_is_synced(memory: MemoryStorage) -> None:
    durable_file(memory, "/s/a", b"abc")
    memory.unlink("/s/a")
    assert contents(memory, "/s/a") == {b"abc", None}
    memory.sync_dir("/s")
    assert contents(memory, "/s/a") == {None}


def test_rename_happens_whole_or_not_at_all(memory: MemoryStorage) -> None:
    durable_file(memory, "/s/a", b"new")
    durable_file(memory, "/s/b", b"old")
    memory.rename("/s/a", "/s/b")
    found = {(image.exists("/s/a"), image.read_file("/s/b")) for image in memory.crash_states()}
    assert found == {(True, b"old"), (False, b"new")}


def test_s16_atomic_write_is_old_or_new_at_every_step(memory: MemoryStorage) -> None:
    memory.write_atomic("/s/a.json", b"old")
    seen: list[bytes] = []
    memory.on_step = lambda operation, path: seen.extend(
        image.read_file("/s/a.json") for image in memory.crash_states()
    )
    memory.write_atomic("/s/a.json", b"the new one")
    assert set(seen) == {b"old", b"the new one"}
    memory.on_step = None
    assert contents(memory, "/s/a.json") == {b"the new one"}


def test_file_being_made_may_be_missing_short_or_whole(memory: MemoryStorage) -> None:
    seen: set[int | None] = set()

    def look(operation: str, path: str) -> None:
        seen.update(None if body is None else len(body) for body in contents(memory, "/s/0"))

    memory.on_step = look
    memory.open_mapping("/s/0", 4 * PAGE, create=True, reserve=True)
    assert seen == {None, 0, 2 * PAGE, 4 * PAGE}


def test_torn_page_has_new_sectors_in_front_of_old_ones(memory: MemoryStorage) -> None:
    file = memory.open_sparse("/s/a", PAGE, create=True)
    file.write(0, b"o" * PAGE)
    file.sync()
    file.write(0, b"n" * PAGE)
    torn = [image.read_file("/s/a") for image in memory.crash_states(torn=True)][-1]
    cut = torn.count(b"n")
    assert torn == b"n" * cut + b"o" * (PAGE - cut)
    assert 0 < cut < PAGE
    assert cut % 512 == 0


def test_image_is_independent_and_durable(memory: MemoryStorage) -> None:
    durable_file(memory, "/s/a", b"abc")
    image = next(memory.crash_states())
    image.create_file("/s/a", b"changed")
    assert memory.read_file("/s/a") == b"abc"
    assert contents(next(memory.crash_states()), "/s/a") == {b"abc"}


def test_lock_does_not_survive_a_crash(memory: MemoryStorage) -> None:
    memory.lock("/s/lock")
    for image in memory.crash_states():
        image.lock("/s/lock").release()
    assert memory.exists("/s/lock")


def test_many_open_pages_give_a_bounded_varied_choice(memory: MemoryStorage) -> None:
    file = memory.open_sparse("/s/a", 100 * PAGE, create=True)
    file.sync()
    for page in range(100):
        file.write(page * PAGE, b"x")
    kept = [image.read_file("/s/a").count(b"x") for image in memory.crash_states(limit=50)]
    assert len(kept) == 50
    assert kept[:2] == [0, 100]
    assert {1, 99} <= set(kept)


def test_choice_is_the_same_for_the_same_seed(memory: MemoryStorage) -> None:
    file = memory.open_sparse("/s/a", 20 * PAGE, create=True)
    for page in range(20):
        file.write(page * PAGE, b"x")
    first, second = (
        [image.read_file("/s/a") for image in memory.crash_states(30, seed=4) if image.exists("/s/a")]
        for _ in range(2)
    )
    assert first == second


@given(st.lists(st.integers(1, 4), max_size=6), st.integers(1, 100))
def test_choices_are_distinct_valid_and_complete_when_few(counts: list[int], limit: int) -> None:
    times = [[0, *range(place + 1, place + count)] for place, count in enumerate(counts)]
    found = list(islice(choices(times, limit, random.Random(1)), 10_000))
    assert len(set(found)) == len(found)
    assert all(
        0 <= index < len(options) for choice in found for index, options in zip(choice, times, strict=True)
    )
    every = 1
    for options in times:
        every *= len(options)
    assert len(found) == min(every, limit) or every <= limit == len(found)


def test_full_memory_is_enospc_and_comes_back(memory: MemoryStorage) -> None:
    memory.capacity = 3 * PAGE
    memory.open_mapping("/s/0", 2 * PAGE, create=True, reserve=True)
    with pytest.raises(OSError) as caught:
        memory.open_mapping("/s/1", 2 * PAGE, create=True, reserve=True)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/s/1")
    assert not memory.exists("/s/1")
    sparse = memory.open_sparse("/s/q", 100 * PAGE, create=True)
    sparse.write(0, b"x")
    with pytest.raises(OSError):
        sparse.write(PAGE, b"x")
    assert memory.disk_usage("/s") == 1.0
    memory.unlink("/s/0")
    sparse.write(PAGE, b"x")
    assert memory.used == 2 * PAGE


def test_faults_hit_matching_paths_so_often_and_so_late_as_asked(memory: MemoryStorage) -> None:
    one = memory.open_sparse("/s/one", PAGE, create=True)
    other = memory.open_sparse("/s/other", PAGE, create=True)
    memory.fail("write", errno.EIO, times=2, path_glob="one", after=1)
    other.write(0, b"x")
    one.write(0, b"1")
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            one.write(0, b"2")
        assert caught.value.errno == errno.EIO
    one.write(0, b"3")
    assert one.read(0, 1) == b"3"


def test_endless_fault_ends_with_healing(memory: MemoryStorage) -> None:
    mapping = memory.open_mapping("/s/0", PAGE, create=True, reserve=True)
    memory.fail("sync", errno.EIO, times=0)
    for _ in range(3):
        with pytest.raises(OSError):
            mapping.sync()
    assert mapping.injected[2] == errno.EIO
    memory.heal()
    mapping.sync()
    assert mapping.injected == (0, 0, 0, 0)


def test_fault_counts_across_files_and_native_calls(memory: MemoryStorage) -> None:
    first = memory.open_mapping("/s/0", PAGE, create=True, reserve=True)
    second = memory.open_mapping("/s/1", PAGE, create=True, reserve=True)
    memory.fail("write", errno.EIO, times=2)
    assert first.injected[:2] == second.injected[:2] == (errno.EIO, 2)
    with pytest.raises(OSError):
        first.write(0, b"x")
    assert second.injected[:2] == (errno.EIO, 1)
    second.inject(write_error=0)  # as if native code had met the last one
    first.write(0, b"x")
    assert first.injected[:2] == (0, 0)


def test_unknown_operation_is_refused(memory: MemoryStorage) -> None:
    with pytest.raises(ValueError, match="no such operation"):
        memory.fail("flush")


def test_flipped_bit_is_on_disk(memory: MemoryStorage) -> None:
    durable_file(memory, "/s/a", b"a")
    memory.flip_bit("/s/a", 0, 1)
    assert contents(memory, "/s/a") == {b"c"}


def test_copy_keeps_everything(memory: MemoryStorage) -> None:
    memory.create_file("/s/a", b"not yet durable")
    assert contents(memory.copy(), "/s/a") == {b"not yet durable"}
