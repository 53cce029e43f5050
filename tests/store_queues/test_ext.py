"""The extension file: addresses stay true, what is cut is gone, nothing is given out twice."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.place import Place
from penstock.errors import CorruptFile, StoreReadOnly
from penstock.files import DiskStorage, MemoryStorage, Storage
from penstock.format.extunit import NOT_AN_ADDRESS, ExtOracle, ExtUnit, decorate
from penstock.store.consumequeueext import ConsumeQueueExt, align, last_address, trim

FILE = 256


def make(storage: Storage, root: str, file_size: int = FILE, *, writable: bool = True) -> ConsumeQueueExt:
    ext = ConsumeQueueExt(storage, f"{root}/ext", file_size, writable=writable)
    ext.load()
    ext.recover()
    return ext


def contents(storage: Storage, root: str) -> list[bytes]:
    names = [entry.name for entry in storage.listdir(f"{root}/ext")]
    return [storage.read_file(f"{root}/ext/{name}") for name in names]


@dataclass
class Units:
    """A queue of 20-byte units, as far as an extension looks at it."""

    addresses: list[int]
    first: int = 0
    file_size: int = 200
    files: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        end = (self.first + len(self.addresses)) * 20
        self.files = tuple(range(self.first * 20 // 200 * 200, max(end, 1), 200)) if self.addresses else ()

    @property
    def min_offset(self) -> int:
        return self.first

    @property
    def max_offset(self) -> int:
        return self.first + len(self.addresses)

    def read(self, logic: int, count: int) -> bytes:
        blank = [0] * self.first
        data = b"".join(struct.pack(">qiq", 1, 1, tags) for tags in blank + self.addresses)
        end = logic - logic % self.file_size + self.file_size
        return data[logic : min(logic + count, end)]


def test_the_vector_of_the_format(place: Place) -> None:
    ext = make(place.storage, place.root, 64)
    assert ext.put(7, 1000, b"\x01\x02") == -(1 << 63)
    assert ext.put(8, 1001, None) == -(1 << 63) + 0x16
    assert ext.put(9, 1002, None) == -(1 << 63) + 0x40
    first, _ = contents(place.storage, place.root)
    expected = (
        "0016 0000000000000007 00000000000003E8 0002 0102 0014 0000000000000008 00000000000003E9 0000 FFFF"
    )
    assert first == bytes.fromhex(expected).ljust(64, b"\0")


@given(st.lists(st.tuples(st.integers(-(2**31), 2**63 - 1), st.integers(0, 2**62), st.binary(max_size=120))))
def test_it_places_units_as_the_oracle_does_and_finds_them_again(units: list[tuple[int, int, bytes]]) -> None:
    storage, oracle = MemoryStorage(), ExtOracle(FILE)
    storage.makedirs("/s")
    ext = make(storage, "/s")
    addresses = [ext.put(*unit) for unit in units]
    assert addresses == [oracle.put(ExtUnit(*unit)) for unit in units]
    ext.close()
    for reopened in (make(storage, "/s"), make(storage, "/s", writable=False)):
        assert [reopened.get(address) for address in addresses] == [ExtUnit(*unit) for unit in units]
    if units:
        assert contents(storage, "/s") == [bytes(file) for file in oracle.files]


def test_a_unit_that_is_too_large_gets_no_address(place: Place) -> None:
    ext = make(place.storage, place.root, 1 << 17)
    assert ext.put(1, 1, bytes(32748)) == NOT_AN_ADDRESS
    assert ext.get(ext.put(1, 1, bytes(32747))) == ExtUnit(1, 1, bytes(32747))
    small = ConsumeQueueExt(place.storage, place.path("small"), 64)
    assert small.put(1, 1, bytes(41)) == NOT_AN_ADDRESS
    assert small.files == ()
    assert small.put(1, 1, bytes(40)) == decorate(0)


@pytest.mark.parametrize(
    "address", [0, 1, -5, -(1 << 31), decorate(0), decorate(FILE - 1), decorate(1 << 40)]
)
def test_an_address_without_a_unit_finds_nothing(place: Place, address: int) -> None:
    assert make(place.storage, place.root).get(address) is None


def test_puts_go_on_where_they_ended_after_reopening(place: Place) -> None:
    ext = make(place.storage, place.root)
    first = ext.put(1, 10)
    ext.flush()
    ext.close()
    again = make(place.storage, place.root)
    second = again.put(2, 20)
    assert second == first + 20
    assert again.get(first) == ExtUnit(1, 10)


def test_a_file_that_was_ended_stays_ended_after_reopening(place: Place) -> None:
    ext = make(place.storage, place.root, 64)
    ext.put(1, 1)
    ext.put(1, 1, bytes(25))
    ext.close()
    assert make(place.storage, place.root, 64).files == (0, 64)
    place.storage.unlink(place.path("ext/" + "64".zfill(20)))
    again = make(place.storage, place.root, 64)
    assert again.put(2, 2) == decorate(64)


@pytest.mark.parametrize("keep", range(12))
def test_cutting_at_an_address_erases_what_is_behind_it(place: Place, keep: int) -> None:
    ext = make(place.storage, place.root, 64)
    addresses = [ext.put(n, n, bytes(n % 3)) for n in range(12)]
    ext.truncate_by_max_address(addresses[keep])
    assert [ext.get(address) is not None for address in addresses] == [n <= keep for n in range(12)]
    ext.close()
    oracle = ExtOracle(64)
    for n in range(keep + 1):
        oracle.put(ExtUnit(n, n, bytes(n % 3)))
    assert contents(place.storage, place.root) == [bytes(file) for file in oracle.files]
    again = make(place.storage, place.root, 64)
    assert again.put(99, 99) == oracle.put(ExtUnit(99, 99))


def test_cutting_at_a_lost_address_changes_nothing(place: Place) -> None:
    ext = make(place.storage, place.root)
    address = ext.put(1, 1)
    ext.truncate_by_max_address(decorate(100))
    ext.truncate_by_max_address(7)
    assert ext.get(address) == ExtUnit(1, 1)


def test_expired_files_go_and_the_last_stays(place: Place) -> None:
    ext = make(place.storage, place.root, 64)
    addresses = [ext.put(n, n) for n in range(10)]
    ext.truncate_by_min_address(addresses[5])
    assert ext.files[0] == 64
    assert ext.get(addresses[0]) is None
    assert ext.get(addresses[5]) == ExtUnit(5, 5)
    ext.truncate_by_min_address(decorate(1 << 30))
    assert ext.files == (192,)


def test_half_a_unit_behind_the_end_is_erased(place: Place) -> None:
    ext = make(place.storage, place.root)
    whole = ext.put(1, 1, b"abc")
    ext.put(2, 2, b"defg")
    ext.flush()
    ext.close()
    path = place.path("ext/" + "0" * 20)
    data = bytearray(place.storage.read_file(path))
    data[23 + 18 :] = bytes(len(data) - 41)  # the bitmap and its length did not reach the disk
    place.storage.create_file(path, bytes(data))
    again = make(place.storage, place.root)
    assert again.get(whole) == ExtUnit(1, 1, b"abc")
    assert again.end_offset == 23
    assert not any(place.storage.read_file(path)[23:])


def test_reading_only_writes_nothing(tmp_path: Path) -> None:
    storage = DiskStorage()
    ext = make(storage, str(tmp_path))
    address = ext.put(5, 6, b"x")
    ext.put(7, 8)
    ext.flush()
    path = tmp_path / "ext" / ("0" * 20)
    damaged = bytearray(path.read_bytes())
    damaged[21 + 18] = 9
    path.write_bytes(damaged)
    path.chmod(0o444)
    before = path.stat()
    reader = make(storage, str(tmp_path), writable=False)
    assert reader.get(address) == ExtUnit(5, 6, b"x")
    assert reader.get(address + 21) is None
    with pytest.raises(StoreReadOnly):
        reader.put(1, 1)
    reader.flush()
    reader.close()
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.read_bytes() == damaged


def test_a_reader_sees_files_that_came_after_it(place: Place) -> None:
    reader = make(place.storage, place.root, writable=False)
    address = make(place.storage, place.root).put(3, 4)
    assert reader.get(address) == ExtUnit(3, 4)


def test_a_file_of_a_wrong_size_is_told(place: Place) -> None:
    make(place.storage, place.root).put(1, 1)
    with pytest.raises(CorruptFile):
        make(place.storage, place.root, 512)
    place.storage.create_file(place.path("ext/" + "256".zfill(20)), b"")
    with pytest.raises(CorruptFile):
        make(place.storage, place.root, 512, writable=False)


def test_a_full_disk_is_an_error_and_can_be_tried_again() -> None:
    storage = MemoryStorage()
    storage.makedirs("/s")
    ext = make(storage, "/s")
    first = ext.put(1, 1)
    storage.fail("write", errno.ENOSPC, times=1, path_glob="*ext*")
    with pytest.raises(OSError, match="space"):
        ext.put(2, 2)
    assert ext.get(first + 20) is None
    assert ext.put(2, 2) == first + 20


def test_flushed_units_survive_a_power_cut() -> None:
    storage = MemoryStorage()
    storage.makedirs("/s")
    ext = make(storage, "/s", 64)
    addresses = [ext.put(n, n) for n in range(5)]
    ext.flush()
    ext.put(9, 9)
    for image in storage.crash_states(limit=50):
        found = make(image, "/s", 64)
        assert [found.get(address) for address in addresses] == [ExtUnit(n, n) for n in range(5)]


def test_aligning_cuts_the_extension_to_its_queue(place: Place) -> None:
    ext = make(place.storage, place.root)
    addresses = [ext.put(n, n) for n in range(40)]
    align(Units([*addresses[:13], 0, 77]), ext)
    assert ext.get(addresses[12]) == ExtUnit(12, 12)
    assert ext.get(addresses[13]) is None
    align(Units([]), ext)
    assert ext.get(addresses[0]) is None
    assert ext.put(1, 1) == decorate(0)


def test_an_address_whose_unit_is_lost_is_never_given_again(place: Place) -> None:
    ext = make(place.storage, place.root)
    known = ext.put(1, 1)
    lost = decorate(3 * FILE + 60)
    align(Units([known, lost]), ext)
    assert ext.get(lost) is None
    fresh = ext.put(2, 2)
    assert fresh == decorate(4 * FILE)
    ext.flush()
    ext.close()
    again = make(place.storage, place.root)
    assert (again.get(known), again.get(lost), again.get(fresh)) == (ExtUnit(1, 1), None, ExtUnit(2, 2))


def test_the_last_address_is_found_across_files() -> None:
    assert last_address(Units([])) is None
    assert last_address(Units([5] * 30)) is None
    assert last_address(Units([decorate(1)] + [5] * 30)) == decorate(1)
    assert last_address(Units([5] * 30 + [decorate(2)], first=7)) == decorate(2)


def test_trimming_follows_the_minimum_of_the_queue(place: Place) -> None:
    ext = make(place.storage, place.root, 64)
    addresses = [ext.put(n, n) for n in range(10)]
    trim(Units(addresses[8:], first=8), ext)
    assert ext.files[0] == 128
    trim(Units([]), ext)
    assert ext.get(addresses[9]) == ExtUnit(9, 9)


def test_destroying_removes_folder_and_files(place: Place) -> None:
    ext = make(place.storage, place.root)
    ext.put(1, 1)
    ext.destroy()
    assert not place.storage.exists(place.path("ext"))
