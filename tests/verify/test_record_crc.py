"""The whole-record CRC property (2.6): with it, no byte of a record can change without being found."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden_store import unpack
from penstock.files.memory import MemoryStorage
from penstock.format.record import CRC32_RESERVED_LENGTH, decode_record
from penstock.store.directory import StoreDirectory
from penstock.store.scan import LogScanner
from penstock.store.verify import verify_store

ROOT = "/store"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryStorage, list[tuple[int, int]]]:
    """RocketMQ's records with that property, in memory; place and size of each that has it."""
    golden = unpack("prop-crc", tmp_path_factory.mktemp("golden"))
    storage = MemoryStorage()
    for file in sorted(golden.path.rglob("*")):
        if file.is_file():
            name = f"{ROOT}/{file.relative_to(golden.path)}"
            storage.makedirs(str(Path(name).parent))
            storage.write_atomic(name, file.read_bytes())
    found = [
        (message.physical_offset, message.size)
        for message in LogScanner(StoreDirectory(storage, ROOT)).messages()
        if message.properties_bytes[-CRC32_RESERVED_LENGTH:].startswith(b"__CRC32#\x01")
    ]
    assert len(found) > 3
    return storage, found


def log_file(storage: MemoryStorage, offset: int) -> tuple[str, int]:
    files = StoreDirectory(storage, ROOT).log_files
    file = next(file for file in reversed(files) if file.begin <= offset)
    return file.path, offset - file.begin


def test_s27_every_byte_of_a_record_is_covered(stored: tuple[MemoryStorage, list[tuple[int, int]]]) -> None:
    storage, places = stored
    place, size = min(places[1:-1], key=lambda found: found[1])
    path, at = log_file(storage, place)
    record = decode_record(storage.pread(path, at, size))
    assert record.physical_offset == place
    for number in range(size):
        bit = number % 8
        storage.flip_bit(path, at + number, bit)
        report = verify_store(ROOT, storage=storage)
        storage.flip_bit(path, at + number, bit)
        located = [(fault.file, fault.offset) for fault in report.faults]
        assert (path, at) in located, f"bit {bit} of byte {number}: {located}"


def test_s27_name_of_the_crc_property_does_not_hide_it(
    stored: tuple[MemoryStorage, list[tuple[int, int]]],
) -> None:
    storage, places = stored
    place, size = places[2]
    path, at = log_file(storage, place)
    for position in range(at + size - CRC32_RESERVED_LENGTH, at + size):
        for bit in range(8):
            storage.flip_bit(path, position, bit)
            report = verify_store(ROOT, storage=storage)
            storage.flip_bit(path, position, bit)
            assert ("record-crc", path, at) in [(f.kind, f.file, f.offset) for f in report.faults]


def test_whole_records_are_healthy(stored: tuple[MemoryStorage, list[tuple[int, int]]]) -> None:
    report = verify_store(ROOT, storage=stored[0])
    assert report.faults == [] and report.records >= len(stored[1])
