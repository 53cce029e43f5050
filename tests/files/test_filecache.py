from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from penstock.files import FileCache
from penstock.files.filecache import raise_descriptor_limit

from .place import Place


def test_no_more_files_are_open_than_allowed_and_all_keep_their_bytes(place: Place) -> None:
    cache = FileCache(place.storage, limit=3)
    for number in range(10):
        with cache.use(place.path(f"q{number}"), 4096, create=True) as file:
            file.write(0, bytes([number + 1]))
    assert len(cache) == 3
    for number in range(10):
        with cache.use(place.path(f"q{number}"), 4096) as file:
            assert file.read(0, 1) == bytes([number + 1])
    assert len(cache) == 3


def test_least_recently_used_goes_first(place: Place) -> None:
    cache = FileCache(place.storage, limit=2)
    files = {}
    for name in ("a", "b", "a", "c"):
        with cache.use(place.path(name), 4096, create=True) as file:
            files[name] = file
    assert (files["a"].closed, files["b"].closed, files["c"].closed) == (False, True, False)


def test_file_in_use_is_not_closed_under_its_user(place: Place) -> None:
    cache = FileCache(place.storage, limit=1)
    held = cache.acquire(place.path("a"), 4096, create=True)
    descriptor = held.fileno()
    other = cache.acquire(place.path("b"), 4096, create=True)
    other.write(0, b"b")
    assert (held.closed, held.fileno(), len(cache)) == (False, descriptor, 2)
    held.release()
    other.release()
    with cache.use(place.path("c"), 4096, create=True):
        assert (held.closed, other.closed, len(cache)) == (True, True, 1)


def test_files_in_use_stay_and_all_others_are_within_the_limit(place: Place) -> None:
    cache = FileCache(place.storage, limit=4)
    held = [cache.acquire(place.path(f"held{n}"), 4096, create=True) for n in range(3)]
    for number in range(20):
        with cache.use(place.path(f"q{number}"), 4096, create=True):
            assert len(cache) <= 4
    assert not any(file.closed for file in held)
    assert cache.acquire(place.path("held0"), 4096) is held[0]


def test_one_open_file_for_a_name(place: Place) -> None:
    cache = FileCache(place.storage)
    first = cache.acquire(place.path("a"), 4096, create=True)
    second = cache.acquire(place.path("a"), 4096)
    assert first is second
    first.release()
    second.release()
    cache.forget(place.path("a"))
    assert first.closed
    cache.close()
    assert len(cache) == 0


def test_missing_file_is_an_error_unless_it_is_to_be_made(place: Place) -> None:
    cache = FileCache(place.storage)
    with pytest.raises(FileNotFoundError):
        cache.acquire(place.path("a"), 4096)
    assert len(cache) == 0


def test_cache_of_nothing_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="at least one"):
        FileCache(place.storage, limit=0)


def test_descriptor_limit_is_raised_only_upwards_and_only_when_asked() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))\n"
        "import penstock.files; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "from penstock.files.filecache import raise_descriptor_limit as up\n"
        "print(up(100), up(50), up(1000), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:2] == ["64", "100 100 128 (128, 128)"]
    assert raise_descriptor_limit(1) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
