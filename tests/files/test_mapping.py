from __future__ import annotations

import errno
import gc
import os
import threading
from pathlib import Path

import pytest

from penstock._native.mapping import Mapping
from penstock._native.pages import differing_pages

SIZE = 1 << 20


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_created_file_has_all_its_blocks_before_it_is_mapped(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True, reserve=True, file_from=7)
    assert blocks(tmp_path / "a") >= SIZE
    assert (mapping.size, mapping.file_from, mapping.reserved, mapping.wrote_position) == (SIZE, 7, True, 0)


def test_file_made_without_reserve_is_sparse_and_can_be_reserved_later(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True)
    mapping.write(5000, b"kept")
    assert blocks(tmp_path / "a") < SIZE
    mapping.reserve()
    assert blocks(tmp_path / "a") >= SIZE
    assert mapping.read(4999, 6) == b"\0kept\0"


def test_shorter_file_is_refused_because_reading_behind_its_end_would_kill(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    with pytest.raises(OSError, match="100 bytes") as caught:
        Mapping.open(tmp_path / "a", SIZE, writable=False)
    assert caught.value.errno == errno.EINVAL
    assert str(tmp_path / "a") in str(caught.value)


def test_failed_creation_leaves_no_file_and_names_it(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        Mapping.open(tmp_path / "a", 1 << 60, create=True, reserve=True)
    assert str(caught.value.filename) == str(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_failed_lengthening_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    with pytest.raises(OSError):
        Mapping.open(tmp_path / "a", 1 << 60, create=True, reserve=True)
    assert (tmp_path / "a").read_bytes() == b"x" * 100


def test_descriptor_is_not_inherited_by_programs(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    assert not os.get_inheritable(mapping.fileno())


def test_append_publishes_the_position_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    assert mapping.append(b"abc")
    assert mapping.append(b"d" * 4093)
    assert mapping.is_full
    assert not mapping.append(b"e")
    assert bytes(mapping.view(0, 4)) == b"abcd"


def test_large_append_arrives_whole(tmp_path: Path) -> None:
    data = os.urandom(200_000)
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True)
    assert mapping.append(data)
    mapping.sync()
    assert (tmp_path / "a").read_bytes()[: len(data)] == data


def test_writes_through_descriptor_and_mapping_are_one(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 8192, create=True)
    mapping.write(4096, b"by descriptor")
    assert bytes(mapping.view(4096, 13)) == b"by descriptor"
    mapping.append(b"by mapping")
    assert mapping.read(0, 10) == b"by mapping"


def test_range_outside_the_file_is_refused(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    for call in (
        lambda: mapping.view(4090, 7),
        lambda: mapping.view(-1, 1),
        lambda: mapping.read(4096, 1),
        lambda: mapping.write(4095, b"ab"),
        lambda: mapping.punch_zero(0, 4097),
    ):
        with pytest.raises(ValueError, match="outside the file"):
            call()
    with pytest.raises(ValueError, match="outside"):
        mapping.wrote_position = 4097


def test_s12_memory_is_never_unmapped_under_a_view(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    mapping.append(b"still here")
    view = mapping.view(0, 10)
    part = view[6:]
    mapping.close()
    del view
    gc.collect()
    assert not mapping.unmapped
    assert bytes(part) == b"here"
    del part
    assert mapping.unmapped


def test_s12_hold_keeps_memory_and_descriptor_beyond_close(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    mapping.hold()
    mapping.close()
    assert mapping.fileno() >= 0
    mapping.release()
    assert mapping.unmapped
    assert mapping.fileno() == -1
    with pytest.raises(ValueError, match="more often"):
        mapping.release()


def use_until_closed(mapping: Mapping, call: str, started: threading.Barrier, outcomes: list[str]) -> None:
    started.wait()
    try:
        while True:
            mapping.sync() if call == "sync" else mapping.read(0, 70)
    except ValueError as error:
        outcomes.append(str(error))


def test_s12_closing_beside_running_syncs_and_reads_is_safe(tmp_path: Path) -> None:
    for _ in range(20):
        mapping = Mapping.open(tmp_path / "a", 64 << 10, create=True)
        mapping.append(b"x" * 70)
        started = threading.Barrier(3)
        outcomes: list[str] = []
        threads = [
            threading.Thread(target=use_until_closed, args=(mapping, call, started, outcomes))
            for call in ("sync", "read")
        ]
        for thread in threads:
            thread.start()
        started.wait()
        mapping.close()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 2
        assert all("closed" in outcome for outcome in outcomes)
        assert mapping.unmapped


def test_closed_mapping_refuses_every_use(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    mapping.close()
    mapping.close()
    for call in (
        mapping.sync,
        mapping.commit,
        lambda: mapping.read(0, 1),
        lambda: mapping.write(0, b"x"),
        lambda: mapping.append(b"x"),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(BufferError, match="closed"):
        mapping.view(0, 1)


def test_views_are_read_only_unless_asked(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    assert mapping.view(0, 4).readonly
    writable = mapping.view_writable(0, 4)
    writable[:] = b"abcd"
    assert mapping.read(0, 4) == b"abcd"


def test_read_only_mapping_refuses_to_write(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(4096))
    mapping = Mapping.open(tmp_path / "a", 4096, writable=False)
    for call in (
        lambda: mapping.append(b"x"),
        lambda: mapping.write(0, b"x"),
        lambda: mapping.view_writable(0, 1),
        lambda: mapping.punch_zero(0, 1),
        mapping.reserve,
    ):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_erasing_a_reserved_file_keeps_its_blocks(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True, reserve=True)
    mapping.append(b"\xff" * SIZE)
    mapping.punch_zero(100, SIZE)
    mapping.sync()
    assert blocks(tmp_path / "a") >= SIZE
    assert (tmp_path / "a").read_bytes() == b"\xff" * 100 + bytes(SIZE - 100)
    assert not any(mapping.view(100, SIZE - 100))


def test_erasing_a_sparse_file_gives_blocks_back(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True)
    mapping.write(0, b"\xff" * SIZE)
    mapping.punch_zero(4096, SIZE)
    mapping.sync()
    assert (tmp_path / "a").read_bytes() == b"\xff" * 4096 + bytes(SIZE - 4096)
    assert blocks(tmp_path / "a") < SIZE


@pytest.mark.parametrize("written", [False, True])
def test_preparing_pages_changes_no_byte_even_under_the_writer(tmp_path: Path, written: bool) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True, reserve=True)
    data = os.urandom(SIZE)
    done = threading.Event()

    def append() -> None:
        for begin in range(0, SIZE, 1000):
            mapping.append(data[begin : begin + 1000])
        done.set()

    writer = threading.Thread(target=append)
    writer.start()
    while not done.is_set():
        mapping.prepare(0, 2 * SIZE, written=written)
    writer.join()
    assert bytes(mapping.view(0, SIZE)) == data


@pytest.mark.parametrize("through", ["mapping", "descriptor"])
def test_writing_blocks_ahead_never_overtakes_the_writer(tmp_path: Path, through: str) -> None:
    data = os.urandom(SIZE)
    for number in range(20):
        mapping = Mapping.open(tmp_path / str(number), SIZE, create=True, reserve=True)
        begin_together = threading.Barrier(2)

        def write(mapping: Mapping = mapping, begin_together: threading.Barrier = begin_together) -> None:
            begin_together.wait()
            for begin in range(0, SIZE, 3000):
                if through == "mapping":
                    mapping.append(data[begin : begin + 3000])
                else:
                    mapping.write(begin, data[begin : begin + 3000])
                    mapping.wrote_position = min(SIZE, begin + 3000)

        writer = threading.Thread(target=write)
        writer.start()
        begin_together.wait()
        while mapping.wrote_position < SIZE:
            # Always just in front of the writer, where the blocks were not written yet.
            mapping.prepare(mapping.wrote_position, 3 * 65536, written=True)
        writer.join()
        assert bytes(mapping.view(0, SIZE)) == data
        mapping.close()
        assert (tmp_path / str(number)).read_bytes() == data


def test_writing_blocks_ahead_leaves_what_is_there_already(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True, reserve=True)
    mapping.write(300_000, b"nobody moved a position for this")
    mapping.sync()
    mapping.close()
    mapping = Mapping.open(tmp_path / "a", SIZE)
    mapping.reserve()
    mapping.prepare(0, SIZE, written=True)
    expected = bytearray(SIZE)
    expected[300_000:300_032] = b"nobody moved a position for this"
    assert bytes(mapping.view(0, SIZE)) == expected
    assert mapping.data_extents(0) == [(0, SIZE)]  # all of it counts as written


def test_pages_are_mapped_ahead_only_for_who_stores_through_the_mapping(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True, reserve=True)
    if mapping.data_extents(0):
        pytest.skip("this file system does not tell which blocks were never written")
    quarter = SIZE // 4
    mapping.prepare(0, quarter)  # nobody knows yet
    mapping.write(0, b"x" * 1000)
    mapping.wrote_position = 1000
    mapping.prepare(quarter, quarter)
    assert mapping.data_extents(0) == [(0, quarter)]
    mapping.append(b"y" * 1000)
    mapping.prepare(2 * quarter, quarter)
    assert mapping.data_extents(quarter) == [(2 * quarter, 3 * quarter)]


def test_preparing_never_touches_holes(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", SIZE, create=True)
    mapping.prepare(0, SIZE, written=True)
    assert blocks(tmp_path / "a") == 0


def test_commit_moves_the_buffer_into_the_file_and_readers_see_only_that(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 8192, create=True)
    buffer = bytearray(8192)
    mapping.attach_write_buffer(buffer)
    buffer[:5] = b"hello"
    mapping.wrote_position = 5
    assert mapping.read_position == 0
    assert mapping.read(0, 5) == bytes(5)
    assert mapping.commit() == 5
    assert (mapping.read_position, mapping.read(0, 5)) == (5, b"hello")
    mapping.detach_write_buffer()
    assert mapping.read_position == 5
    buffer.extend(b"free again")


def test_uncommitted_buffer_is_not_detached(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    mapping.attach_write_buffer(bytearray(4096))
    mapping.wrote_position = 1
    with pytest.raises(ValueError, match="uncommitted"):
        mapping.detach_write_buffer()
    with pytest.raises(ValueError, match="already"):
        mapping.attach_write_buffer(bytearray(4096))


def test_buffer_taken_away_beside_running_commits_leaves_its_bytes_in_the_file(tmp_path: Path) -> None:
    for _ in range(20):
        mapping = Mapping.open(tmp_path / "a", SIZE, create=True)
        buffer = bytearray(b"\xff" * SIZE)
        mapping.attach_write_buffer(buffer)
        mapping.wrote_position = SIZE
        started = threading.Barrier(3)

        def commit(mapping: Mapping = mapping, started: threading.Barrier = started) -> None:
            started.wait()
            mapping.commit()

        threads = [threading.Thread(target=commit) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait()
        while mapping.committed_position < SIZE:
            mapping.commit()
        mapping.detach_write_buffer()
        buffer[:] = bytes(SIZE)  # as the pool does for its next file
        for thread in threads:
            thread.join()
        assert (tmp_path / "a").read_bytes() == b"\xff" * SIZE
        mapping.close()
        (tmp_path / "a").unlink()


def test_small_write_buffer_is_refused(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    with pytest.raises(ValueError, match="smaller"):
        mapping.attach_write_buffer(bytearray(4095))
    assert not mapping.has_write_buffer


def test_injected_errors_come_as_often_as_asked(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 4096, create=True)
    mapping.inject(sync_error=errno.EIO, sync_times=2, write_error=errno.ENOSPC, write_times=1)
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            mapping.sync()
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path / "a"))
    mapping.sync()
    with pytest.raises(OSError) as caught:
        mapping.write(0, b"x")
    assert caught.value.errno == errno.ENOSPC
    mapping.write(0, b"x")
    assert mapping.injected == (0, 0, 0, 0)


def test_memory_behind_a_mapping_cannot_be_resized_while_it_lives() -> None:
    memory = bytearray(4096)
    mapping = Mapping.over(memory, 100)
    assert mapping.append(b"abc")
    assert memory[:3] == b"abc"
    assert (mapping.fileno(), mapping.file_from) == (-1, 100)
    with pytest.raises(BufferError):
        memory.extend(b"x")
    mapping.close()
    memory.extend(b"x")


def test_cache_advice_changes_no_byte(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 8192, create=True)
    mapping.append(b"abc")
    mapping.sync()
    mapping.drop_cache()
    mapping.advise_random()
    assert mapping.read(0, 4) == b"abc\0"
    assert bytes(mapping.view(0, 4)) == b"abc\0"


def test_reading_a_cut_file_is_a_short_answer_not_a_signal(tmp_path: Path) -> None:
    mapping = Mapping.open(tmp_path / "a", 8192, create=True)
    os.truncate(tmp_path / "a", 100)
    assert mapping.read(0, 8192) == bytes(100)


def test_differing_pages_are_named() -> None:
    left, right = bytearray(10_000), bytearray(10_000)
    assert differing_pages(left, right) == []
    right[0] = right[4095] = right[9_999] = 1
    assert differing_pages(left, right) == [0, 2]
    with pytest.raises(ValueError, match="one length"):
        differing_pages(left, bytearray(1))
