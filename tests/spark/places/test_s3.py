"""Archived stores and segments behind a URI, on a server that speaks S3."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest

from penstock.errors import NotAStore, StoreError, StoreReadOnly
from penstock.spark.places import Place, open_places
from penstock.store.readonly import ReadOnlyStore
from penstock.store.scan import LogScanner
from spark.places.conftest import COUNT, SEGMENT
from spark.places.s3server import SECRET, S3Server
from spark.places.test_paths import bodies, expected


@pytest.fixture(scope="module")
def archived(s3: S3Server, written: Path) -> str:
    """The key of a store in the bucket."""
    shutil.copytree(written, s3.folder / "stores" / "broker-a")
    return "stores/broker-a"


@pytest.fixture
def place(s3: S3Server, archived: str) -> Place:
    [found] = open_places(s3.uri(archived))
    s3.forget()
    return found


def test_store_behind_a_uri_gives_the_same_messages(place: Place) -> None:
    assert place.has_queues and not place.is_local
    assert place.directory.segment_size == SEGMENT
    assert (place.directory.is_live, place.directory.is_closed) == (False, True)
    assert bodies(place) == expected()


def test_queues_groups_and_times_are_found_behind_a_uri(place: Place) -> None:
    with ReadOnlyStore(place.root, storage=place.storage) as store:
        assert store.queues() == [("Orders", 0)]
        assert store.max_offset("Orders", 0) == COUNT
        assert [bytes(m.body[:11]) for m in store.get("Orders", 0, 4321, 2)] == expected(4321, 4323)
        assert [bytes(m.body[:11]) for m in store.query("Orders", "k77")] == expected(77, 78)


def test_range_is_fetched_and_not_the_object(s3: S3Server, place: Place) -> None:
    file = place.log_files[1]
    s3.forget()
    data = place.storage.pread(file.path, 5_000, 1_000)
    assert len(data) == 1_000
    [request] = s3.reads_of(file.path[-20:])
    assert (request.first, request.last) == (5_000, 5_999)
    assert s3.bytes_out < 4_000


def test_scan_fetches_each_byte_once_and_in_ranges(s3: S3Server, place: Place) -> None:
    begin, piece = SEGMENT, 128 << 10
    scanner = LogScanner(place.directory, begin=begin, window=piece)
    s3.forget()
    runs = scanner.runs()
    assert next(runs).base == begin
    [request] = s3.reads_of(f"{begin:020d}")
    assert (request.first, request.last) == (0, piece - 1)
    for _ in runs:
        pass
    reads = s3.reads_of(f"{begin:020d}")
    assert len(reads) >= SEGMENT // piece
    assert all(0 <= r.first <= r.last < SEGMENT and r.last - r.first < piece for r in reads)
    assert s3.reads_of(f"{0:020d}") == []
    # A record over the edge of a window is fetched again with the next: less than one a window.
    assert sum(r.last - r.first + 1 for r in reads) < SEGMENT + len(reads) * 1_000


def test_segments_glob_and_list_work_behind_a_uri(s3: S3Server, archived: str) -> None:
    [one] = open_places(s3.uri(f"{archived}/commitlog/{SEGMENT:020d}"))
    assert (one.directory.min_physical_offset, one.has_queues) == (SEGMENT, False)
    [every] = open_places(s3.uri(f"{archived}/commitlog/*"))
    assert bodies(every) == expected()
    [first_two] = open_places([s3.uri(f"{archived}/commitlog/{at:020d}") for at in (0, SEGMENT)])
    assert len(first_two.log_files) == 2
    [globbed] = open_places(s3.uri("stores/broker-*"))
    assert globbed.has_queues


def test_names_that_hadoop_uses_for_s3_are_understood(s3: S3Server, archived: str) -> None:
    [place] = open_places(s3.uri(archived).replace("s3://", "s3a://"))
    assert place == open_places(s3.uri(archived))[0]


def test_secrets_are_in_no_text(s3: S3Server, archived: str) -> None:
    [place] = open_places(s3.uri(archived))
    with pytest.raises(NotAStore) as missing:
        open_places(s3.uri("nowhere"))
    texts = [repr(place), str(place), place.uri, str(missing.value), repr(missing.value)]
    assert all(SECRET not in text for text in texts)
    assert place.uri == "s3://archive/stores/broker-a"


@pytest.mark.parametrize("key", ["nowhere/store", "stores/broker-z*", "stores/broker-a/checkpoint"])
def test_wrong_key_says_what_was_looked_for(s3: S3Server, archived: str, key: str) -> None:
    with pytest.raises(NotAStore) as caught:
        open_places(s3.uri(key))
    assert key in str(caught.value) and "store directory" in caught.value.hint


def test_wrong_secret_says_what_to_check(s3: S3Server, archived: str) -> None:
    with pytest.raises(StoreError, match="credentials") as caught:
        open_places(s3.uri(archived, secret="wrong-secret-of-somebody"))
    assert not isinstance(caught.value, NotAStore)
    assert "wrong-secret" not in str(caught.value)


def test_object_removed_under_a_reader_is_a_missing_file(s3: S3Server, written: Path) -> None:
    shutil.copytree(written, s3.folder / "shrinking")
    [place] = open_places(s3.uri("shrinking"))
    file = place.log_files[0]
    opened = place.storage.open_sparse(file.path, file.size, writable=False)
    assert len(opened.read(0, 100)) == 100
    (s3.folder / "shrinking" / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        opened.read(100, 100)
    assert caught.value.filename == file.path
    assert [f.begin for f in place.log_files] == [SEGMENT, 2 * SEGMENT]


def test_nothing_is_ever_written_behind_a_uri(place: Place) -> None:
    storage, path = place.storage, f"{place.root}/checkpoint"
    for write in (
        lambda: storage.unlink(path),
        lambda: storage.write_atomic(path, b""),
        lambda: storage.create_file(path),
        lambda: storage.truncate(path, 0),
        lambda: storage.rename(path, path + "2"),
        lambda: storage.makedirs(path),
        lambda: storage.lock(path),
        lambda: storage.open_sparse(path, 10, create=True),
        lambda: storage.open_mapping(path, 10),
    ):
        with pytest.raises(StoreReadOnly):
            write()
    assert storage.stat(path).size == 4096


def test_each_process_opens_its_own_client(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of an object store has threads, and a fork copies none of them."""
    mine = place.storage
    monkeypatch.setattr(os, "getpid", lambda: -1)
    fresh: Place = pickle.loads(pickle.dumps(place))
    assert fresh.storage is not mine
    assert place.storage is fresh.storage
    monkeypatch.undo()
    assert place.storage is mine
