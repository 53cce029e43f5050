"""Taking back a publication that broke off: its records are cut from the end of the log.

Only while nobody can have seen them. Whoever opens a store to write makes queue units of all its records, so
records that no queue points to were read by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from penstock._native.record import walk
from penstock.errors import StoreError
from penstock.files.disk import DiskStorage
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
    when = 68 if int.from_bytes(stored[36:40], "big") & 0x10 else 56
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


def _records(disk: DiskStorage, files: list[QueueFile], begin: int) -> Iterator[memoryview]:
    """The whole records from an offset on, up to the first place where there is none."""
    for file in files:
        at = max(begin, file.begin)
        end = file.begin + file.size
        while at < end:
            piece = memoryview(disk.pread(file.path, at - file.begin, min(PIECE, end - at)))
            found = walk(piece, 0, len(piece), at)
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
