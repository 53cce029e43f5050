"""Where tasks put records that are not published yet, and how such a file looks.

``<store>/penstock.spark/`` lies beside the store's own folders, which ignore it::

    staging/<write>/<partition>-<attempt>   records of one task attempt, but for what the append fills in
    journal.json                            the publication under way, or the one that a crash interrupted
    markers/<key>.json                      what a keyed writer (a streaming query) has published

A staged file is a magic, blocks, and a trailer that names the queues; each part has its checksum. Numbers
inside are little-endian.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import shutil
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock._native.record import crc32
from penstock.errors import CorruptFile, StoreError
from penstock.files.disk import DiskStorage

FOLDER = "penstock.spark"
BLOCK_BYTES = 4 << 20
_MAGIC = b"PNSTRUN2"
_BLOCK = struct.Struct("<IIII")
_TAIL = struct.Struct("<QII8s")
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


class StagedRun(msgspec.Struct, frozen=True):
    """One finished file of one task attempt. ``file`` is relative to the staging folder."""

    file: str
    records: int
    size: int
    checksum: int


class _Trailer(msgspec.Struct):
    queues: list[tuple[str, int]]
    records: int
    size: int


@dataclass(frozen=True)
class Block:
    """Records of one run, one behind the other. Record i belongs to ``queues[slots[i]]``; ``notes`` say what
    the dispatcher will make of them (``RecordEncoder.notes``).

    The append fills in the records where they lie: the memory is the block's own, see ``BlockMemory``.
    """

    slots: memoryview
    notes: memoryview
    records: memoryview
    queues: Sequence[tuple[str, int]]


class BlockMemory:
    """Where blocks are read to: a block is good until ``blocks`` more of them were read.

    Fresh memory for each block would cost more than to read it: the system clears every page of it.
    """

    def __init__(self, blocks: int) -> None:
        self._buffers = [bytearray() for _ in range(blocks)]
        self._next = 0

    def take(self, size: int) -> memoryview:
        number, self._next = self._next, (self._next + 1) % len(self._buffers)
        if len(self._buffers[number]) < size:
            self._buffers[number] = bytearray(size + size // 4)
        return memoryview(self._buffers[number])[:size]


class StagingArea:
    """The folder of one store. Nothing is made before something is staged."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        self.folder = self.root / FOLDER
        self.staging = self.folder / "staging"
        self.journal = self.folder / "journal.json"
        self.markers = self.folder / "markers"

    def folder_of(self, write: str) -> Path:
        """Where the task attempts of one write leave their files."""
        return self.staging / "/".join(_file_name(part) for part in write.split("/"))

    def marker_of(self, key: str) -> Path:
        return self.markers / f"{_file_name(key)}.json"

    def create(self, write: str, name: str) -> RunWriter:
        folder = self.folder_of(write)
        for _ in range(10):
            DiskStorage().makedirs(folder)
            with contextlib.suppress(
                FileNotFoundError
            ):  # another write removed the folder while it was empty
                return RunWriter(folder / name, str((folder / name).relative_to(self.staging)))
        raise StoreError("the staging folder vanishes again and again", file=folder)

    def blocks(self, run: StagedRun, memory: BlockMemory) -> Iterator[Block]:
        return read_blocks(self.staging / run.file, run, memory)

    def forget(self, write: str) -> None:
        """Remove what was staged for a write, and folders that are empty then."""
        shutil.rmtree(self.folder_of(write), ignore_errors=True)
        self.tidy()

    def remove(self, runs: Iterable[StagedRun]) -> None:
        """Remove some staged files only: others of the same write may be needed yet."""
        for run in runs:
            (self.staging / run.file).unlink(missing_ok=True)
        self.tidy()

    def tidy(self) -> None:
        """Remove folders that are empty."""
        for folder in (*_empty_below(self.staging), self.staging, self.markers, self.folder):
            with contextlib.suppress(OSError):  # not empty, or not there: both are fine
                folder.rmdir()

    def sweep(self, older_than: float, *, keep: frozenset[str] = frozenset()) -> list[str]:
        """Remove staged files that nobody wrote to for ``older_than`` seconds; which.

        They belong to drivers that died before they could commit or abort.
        """
        removed = []
        limit = time.time() - older_than
        for path in sorted(self.staging.rglob("*")) if self.staging.is_dir() else []:
            name = str(path.relative_to(self.staging))
            with contextlib.suppress(FileNotFoundError):  # its writer was quicker
                if path.is_file() and name not in keep and path.stat().st_mtime < limit:
                    path.unlink()
                    removed.append(name)
        if removed:
            self.tidy()
        return removed


def _file_name(text: str) -> str:
    """Text as a name of a file; names that had to be changed still differ from all others."""
    safe = _SAFE.sub("_", text)[:80]
    return safe if safe == text and safe.strip(".") else f"{safe}-{crc32(text.encode()):08x}"


def _empty_below(folder: Path) -> list[Path]:
    """Folders below, the deepest first."""
    return sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True) if folder.is_dir() else []


def _little_endian(numbers: bytes | memoryview) -> bytes | memoryview:
    """32-bit numbers of this machine as they lie in a file, and the other way round."""
    if sys.byteorder == "little":
        return numbers
    swapped = array.array("i", numbers)
    swapped.byteswap()
    return swapped.tobytes()


def _numbers(data: bytes) -> memoryview:
    return memoryview(_little_endian(data)).cast("i")


class RunWriter:
    """Writes one staged file. It is of no use to anybody before ``finish`` has returned."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._name = name
        self._file = path.open("wb", buffering=0)
        self._records = self._size = self._checksum = 0
        self._position = 0
        self._put(_MAGIC)

    def _put(self, *parts: bytes | memoryview) -> None:
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[self._file.write(view) :]
            self._position += len(part)

    def add(self, slots: bytes | memoryview, notes: bytes | memoryview, records: bytes | memoryview) -> None:
        """One block of records with their slots and notes (32-bit numbers of this machine)."""
        slots, notes = _little_endian(slots), _little_endian(notes)
        check = crc32(slots) ^ crc32(notes) ^ crc32(records)
        head = _BLOCK.pack(len(slots) // 4, len(notes) // 4, len(records), check)
        self._put(head, slots, notes, records)
        self._records += len(slots) // 4
        self._size += len(records)
        self._checksum = crc32(self._checksum.to_bytes(4, "little") + check.to_bytes(4, "little"))

    def finish(self, queues: Sequence[tuple[str, int]]) -> StagedRun:
        """Write the trailer. Nothing is synced: who publishes it syncs the log, and needs it no more."""
        trailer = msgspec.json.encode(_Trailer(list(queues), self._records, self._size))
        self._put(trailer, _TAIL.pack(self._position, len(trailer), crc32(trailer), _MAGIC))
        self._file.close()
        return StagedRun(self._name, self._records, self._size, self._checksum)

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def read_blocks(path: Path, run: StagedRun, memory: BlockMemory) -> Iterator[Block]:
    """The blocks of a staged file; ``CorruptFile`` when it is not what was staged."""
    checksum = records = 0
    try:
        with path.open("rb") as file:
            trailer, end = _read_trailer(path, file)
            file.seek(len(_MAGIC))
            while file.tell() < end:
                count, noted, size, check = _BLOCK.unpack(file.read(_BLOCK.size))
                if count > run.records or size > end or noted > end // 4:
                    raise _corrupt(
                        path, f"a block of {size} bytes and {noted} notes before byte {file.tell()}"
                    )
                slots, notes, data = file.read(count * 4), file.read(noted * 4), memory.take(size)
                if file.readinto(data) != size or crc32(slots) ^ crc32(notes) ^ crc32(data) != check:
                    raise _corrupt(
                        path, f"the block of {count} records before byte {file.tell()} was changed"
                    )
                checksum = crc32(checksum.to_bytes(4, "little") + check.to_bytes(4, "little"))
                records += count
                yield Block(_numbers(slots), _numbers(notes), data, trailer.queues)
    except (OSError, struct.error, ValueError, msgspec.MsgspecError) as error:
        raise _corrupt(path, str(error)) from error
    if (records, checksum) != (run.records, run.checksum):
        raise _corrupt(
            path, f"{records} records with checksum {checksum}, not {run.records} with {run.checksum}"
        )


def _read_trailer(path: Path, file: object) -> tuple[_Trailer, int]:
    size = path.stat().st_size
    file.seek(max(0, size - _TAIL.size))  # type: ignore[attr-defined]
    begin, length, check, magic = _TAIL.unpack(file.read(_TAIL.size))  # type: ignore[attr-defined]
    file.seek(begin)  # type: ignore[attr-defined]
    data = file.read(length)  # type: ignore[attr-defined]
    if magic != _MAGIC or crc32(data) != check:
        raise ValueError("its trailer is not whole")
    return msgspec.json.decode(data, type=_Trailer), begin


def _corrupt(path: Path, found: str) -> CorruptFile:
    return CorruptFile(path, found=found, hint="the task that staged it must run again: start the write anew")
