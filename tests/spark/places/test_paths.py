"""What the ``path`` option may name on the machine's own file systems."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from penstock.errors import NotAStore, StoreError, UsageError
from penstock.spark.places import Place, open_places
from penstock.store.scan import LogScanner
from spark.places.conftest import COUNT, SEGMENT


def bodies(place: Place) -> list[bytes]:
    """Of every message, in order, as another process would read them."""
    sent: Place = pickle.loads(pickle.dumps(place))
    return [bytes(message.body[:11]) for message in LogScanner(sent.directory).messages()]


def expected(begin: int = 0, end: int = COUNT) -> list[bytes]:
    return [b"body %06d" % number for number in range(begin, end)]


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def test_store_directory_is_a_place_with_queues(written: Path) -> None:
    [place] = open_places(str(written))
    assert place.has_queues and place.is_local
    assert place.segment_size == place.directory.segment_size == SEGMENT
    assert [file.begin for file in place.log_files] == [0, SEGMENT, 2 * SEGMENT]
    assert bodies(place) == expected()


def test_file_uri_and_relative_path_name_the_same_place(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written.parent)
    ways = [f"file://{written}", f"file:{written}", f"FILE://localhost{written}", "store", written]
    assert [open_places(way) for way in ways] == [open_places(str(written))] * len(ways)


def test_folder_of_segments_is_read_without_a_store_around_it(written: Path, tmp_path: Path) -> None:
    for file in segments(written):
        shutil.copy(file, tmp_path / file.name)
    [place] = open_places(str(tmp_path))
    assert not place.has_queues
    assert (place.directory.segment_size, place.directory.is_live) == (SEGMENT, False)
    assert bodies(place) == expected()


def test_single_segment_gives_its_own_messages_only(written: Path) -> None:
    first = bodies(open_places(str(segments(written)[0]))[0])
    second = bodies(open_places(str(segments(written)[1]))[0])
    assert first + second == expected(0, len(first) + len(second))
    assert len(first) > 1000 and len(second) > 1000


def test_segment_that_was_copied_alone_keeps_its_offsets(written: Path, tmp_path: Path) -> None:
    copied = tmp_path / segments(written)[1].name
    shutil.copy(segments(written)[1], copied)
    [place] = open_places(str(copied))
    assert place.directory.min_physical_offset == SEGMENT
    assert place.directory.segment_size == SEGMENT
    assert bodies(place) == bodies(open_places(str(segments(written)[1]))[0])


def test_segment_cut_short_is_not_taken_for_a_log_of_short_segments(written: Path, tmp_path: Path) -> None:
    copied = tmp_path / segments(written)[1].name
    copied.write_bytes(segments(written)[1].read_bytes()[:333_333])
    [place] = open_places(str(tmp_path))
    assert place.log_files[0].size == 333_333
    assert place.directory.segment_size == SEGMENT
    whole = bodies(open_places(str(segments(written)[1]))[0])
    found = bodies(place)
    assert 0 < len(found) < len(whole) and found == whole[: len(found)]


def test_glob_of_segments_is_one_place_and_passes_over_other_files(written: Path, tmp_path: Path) -> None:
    for file in segments(written):
        shutil.copy(file, tmp_path / file.name)
    (tmp_path / "README").write_text("not a segment")
    [place] = open_places(str(tmp_path / "*"))
    assert bodies(place) == expected()
    [two] = open_places(str(tmp_path / "*[0-9]0"))
    assert len(two.log_files) < 3


def test_glob_of_stores_is_a_place_each(written: Path, tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b", "other"):
        (tmp_path / name).symlink_to(written)
    places = open_places(str(tmp_path / "broker-?"))
    assert [place.uri for place in places] == [str(tmp_path / "broker-a"), str(tmp_path / "broker-b")]
    assert all(bodies(place) == expected() for place in places)


@pytest.mark.parametrize("separated", [",".join, json.dumps, list])
def test_several_paths_are_all_read_and_nothing_twice(
    written: Path,
    separated: object,
) -> None:
    one, two, three = map(str, segments(written))
    [place] = open_places(separated([one, three, one]))  # type: ignore[operator]
    assert [file.path for file in place.log_files] == [one, three]
    assert place.log_files[-1].is_last
    [place] = open_places(separated([one, f"{written}/commitlog", two]))  # type: ignore[operator]
    assert bodies(place) == expected()


def test_comma_in_a_name_that_exists_does_not_part_it(written: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a,b [1]"
    odd.symlink_to(written)
    assert [place.uri for place in open_places(str(odd))] == [str(odd)]


def test_log_files_are_looked_for_anew_and_the_directory_is_a_snapshot(written: Path, tmp_path: Path) -> None:
    store = shutil.copytree(written, tmp_path / "store")
    [place] = open_places(str(store))
    assert len(place.directory.log_files) == 3
    segments(store)[0].unlink()
    assert [len(place.log_files), len(place.directory.log_files)] == [2, 3]
    assert len(place.refreshed().directory.log_files) == 2


def test_pickle_of_a_place_is_small_and_holds_nothing_of_this_process(written: Path) -> None:
    [place] = open_places(str(written))
    before = pickle.dumps(place)
    place.directory.log_files  # noqa: B018 - fills the caches
    assert pickle.dumps(place) == before
    assert len(before) < 1000


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("missing", "there is nothing here"),
        ("missing/deeper/store", "there is nothing here"),
        ("empty", "neither a store nor a log segment"),
        ("notes.txt", "not a log segment"),
        ("notes.txt/store", "there is nothing here"),
        ("no-*", "nothing matches"),
        ("*.txt", "of 1 names that match none is"),
    ],
)
def test_wrong_path_says_what_was_looked_for(tmp_path: Path, path: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotAStore) as caught:
        open_places(str(tmp_path / path))
    assert says in caught.value.message
    assert caught.value.file == str(tmp_path / path)
    assert "store directory" in caught.value.hint and "20 digits" in caught.value.hint


def test_missing_path_tells_what_is_there_instead(tmp_path: Path) -> None:
    (tmp_path / "brokerA").mkdir()
    with pytest.raises(NotAStore, match="brokerA"):
        open_places(str(tmp_path / "brokerB" / "store"))


@pytest.mark.parametrize("path", ["", "  ", ",", "[]", '{"a": 1}', "[1]"])
def test_path_that_names_nothing_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, NotAStore)) as caught:
        open_places(path)
    assert caught.value.hint


def test_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(StoreError, match=r"s3.*hdfs"):
        open_places("carrier-pigeon://coop/store")


def test_folder_that_may_not_be_listed_is_no_missing_store(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(StoreError, match="cannot be looked at"):
        open_places(str(loop))
