"""Taking back a publication that broke off: its records are cut from the end of the log.

Only while nobody can have seen them. Whoever opens a store to write makes queue units of all its records, so
records that no queue points to were read by nobody. Records behind a first one that is not shown are no part
of the log: they only must not lie there when it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from penstock._native.record import crc32, walk
from penstock.errors import StoreError
from penstock.files.disk import DiskStorage
from penstock.files.storage import Storage
from penstock.spark.staging import BlockMemory, StagedRun, StagingArea
from penstock.store import position as positions
from penstock.store.directory import StoreDirectory
from penstock.store.readonly import ReadOnlyStore
from penstock.store.sizes import QueueFile

PIECE = 8 << 20


def roll_back(area: StagingArea, begin: int, runs: list[StagedRun]) -> bool:
    """Cut the log at ``begin`` if all behind it are records of these runs that nobody has seen; else False.

    Raises ``StoreLocked`` when the store is open. A crash in the middle leaves a log that may be cut again.
    """
    disk, root = DiskStorage(), str(area.root)
    lock = disk.lock(str(PurePath(root) / "lock"))
    try:
        files = StoreDirectory(disk, root).log_files
        if not _unseen(disk, root, begin) or not _only_staged(area, disk, files, begin, runs):
            return False
        for file in reversed(files):
            if file.begin >= begin:
                disk.unlink(file.path)
                disk.sync_dir(str(PurePath(file.path).parent))
            elif file.begin + file.size > begin:
                cut = disk.open_sparse(file.path, file.size)
                try:
                    cut.zero(begin - file.begin, file.size)
                    cut.sync()
                finally:
                    cut.close()
        return True
    finally:
        lock.release()


def is_shown(area: StagingArea, begin: int, first: int) -> bool:
    """Whether the log went on from ``begin`` with the record that has the checksum ``first``.

    Raises ``StoreError`` when that place is no longer part of the log.
    """
    directory = StoreDirectory(DiskStorage(), str(area.root))
    if directory.min_physical_offset > begin:
        raise StoreError(
            f"a publication was interrupted at {begin}, and the log begins at"
            f" {directory.min_physical_offset} now: what became of it cannot be seen any more",
            file=area.journal,
            hint="look for its last messages, then remove the journal",
        )
    record = next(_records(directory.storage, directory.log_files, begin), None)
    return record is not None and masked_crc(record) == first


def masked_crc(records: memoryview) -> int:
    """Checksum of the first record, but for what the append fills in."""
    record = bytearray(records[: int.from_bytes(records[:4], "big")])
    when = _store_time_at(record)
    record[20:36] = bytes(16)
    record[when : when + 8] = bytes(8)
    return int(crc32(record))


def _store_time_at(record: bytearray | memoryview) -> int:
    return 68 if int.from_bytes(record[36:40], "big") & 0x10 else 56


def _unseen(disk: DiskStorage, root: str, begin: int) -> bool:
    """Whether the store was neither closed nor opened since, and no queue points behind ``begin``."""
    if not disk.exists(str(PurePath(root) / "abort")):
        return False
    position = positions.load(disk, root)
    if position is None or position.queues > begin or position.index.log_offset > begin:
        return False
    with ReadOnlyStore(root) as store:
        for topic, queue_id in store.queues():
            last = store.queue_unit(topic, queue_id, store.max_offset(topic, queue_id) - 1)
            if last is not None and last[0] >= begin:
                return False
    return True


def _only_staged(
    area: StagingArea, disk: DiskStorage, files: list[QueueFile], begin: int, runs: list[StagedRun]
) -> bool:
    """Whether the whole records from ``begin`` on are the staged ones, in their order."""
    memory = BlockMemory(1)
    staged = _Bytes(block.records for run in runs for block in area.blocks(run, memory))
    try:
        for record in _records(disk, files, begin):
            size = len(record)
            if not _same(record, staged.take(size)):
                return False
    except StoreError:
        return False  # a staged file is damaged: what is in the log cannot be judged
    return True


def _same(stored: memoryview, staged: memoryview) -> bool:
    """Equal but for what the append fills in."""
    if len(stored) != len(staged):
        return False
    when = _store_time_at(stored)
    return (
        stored[:20] == staged[:20]
        and stored[36:when] == staged[36:when]
        and stored[when + 8 :] == staged[when + 8 :]
    )


class _Bytes:
    """Pieces of memory, read on as one."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def take(self, size: int) -> memoryview:
        """The next bytes; records do not lie across pieces, so fewer mean that there are no more."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return memoryview(b"")
            self._rest = piece
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _records(disk: Storage, files: list[QueueFile], begin: int) -> Iterator[memoryview]:
    """The whole records from an offset on, up to the first place where there is none."""
    for file in files:
        at = max(begin, file.begin)
        end = file.begin + file.size
        wanted = PIECE
        while at < end:
            piece = memoryview(disk.pread(file.path, at - file.begin, min(wanted, end - at)))
            found = walk(piece, 0, len(piece), at)
            if found.stop == "short" and not found.end_position and len(piece) < min(found.length, end - at):
                wanted = found.length  # a record longer than a piece; its file bounds it
                continue
            wanted = PIECE
            place = 0
            while place < found.end_position:
                size = int.from_bytes(piece[place : place + 4], "big")
                yield piece[place : place + size]
                place += size
            if found.stop == "blank":
                break
            if found.stop not in ("end", "short") or not found.end_position:
                return
            at += found.end_position
