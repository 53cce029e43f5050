"""A consistent copy of a store directory, taken while it is written or after it was closed.

A closed (or killed) directory is copied as it is. Of one in use everything up to one place in the log is
copied: what is on disk when the store itself does it, every whole record when another process does. Both hold
what was acknowledged before. Queues, index and checkpoint of the copy are cut to that place, so that it opens
like a store that was closed there.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from penstock._native.index import Index
from penstock._native.units import count_before, first_nonzero
from penstock.config import StoreConfig
from penstock.errors import StoreError, UsageError
from penstock.files.disk import DiskStorage
from penstock.files.storage import Storage
from penstock.format.batchunit import BATCH_UNIT_SIZE
from penstock.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, encode_checkpoint
from penstock.store.directory import StoreDirectory
from penstock.store.indexfile import HEADER, index_size, layout_of
from penstock.store.indexverifier import is_index_name
from penstock.store.logfolders import DEFAULT as LOG
from penstock.store.logfolders import NAME as LOG_FOLDERS
from penstock.store.logwindow import LogWindow
from penstock.store.scan import LogScanner
from penstock.store.sizes import QueueFile, files_of, log_files_of, queue_folders
from penstock.store.verify import verify_store

if TYPE_CHECKING:
    from penstock.store.messagestore import MessageStore

PIECE = 1 << 20
QUEUES_STAND_STILL = 1.0
UNIT = 20
_NOT_COPIED = frozenset(("lock", "penstock.damaged", LOG_FOLDERS))
_ENTRY_OFFSET = struct.Struct(">q")

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class BackupReport:
    """What was copied. ``bytes`` counts data, not the holes of sparse files."""

    path: str
    target: str
    live: bool
    end_offset: int
    files: int = 0
    bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def backup_store(
    path: str,
    target: str,
    *,
    config: StoreConfig | None = None,
    progress: Progress = lambda done, whole: None,
) -> BackupReport:
    """Copy a directory that this process does not have open. Raises NotAStore; UsageError for the target."""
    directory = StoreDirectory(None, path, config)
    if directory.size_faults and not directory.is_live:
        raise directory.size_faults[0]
    copy = _Copy(directory.storage, path, target, live=directory.is_live, progress=progress)
    if not directory.is_live:
        return copy.as_it_is(directory)
    copy.settings()
    written = _written_end(StoreDirectory(None, path, config))
    return copy.up_to(_when_queued(path, config, written), written)


def _written_end(directory: StoreDirectory) -> int:
    """End of the last whole record: a record may be acknowledged before a queue knows of it."""
    begin = max(directory.queued_end, directory.min_physical_offset)
    files = directory.log_files
    limit = files[-1].begin + files[-1].size if files else begin
    scanner = LogScanner(directory, begin=begin, limit=limit, resynchronise=False, window=PIECE)
    # Not the scanner's end: it steps over the blank that ends a file, and a log does not end with one.
    end = begin
    for run in scanner.runs():
        end = run.base + run.end
    return end


def _when_queued(path: str, config: StoreConfig | None, end: int) -> StoreDirectory:
    """The directory once the queues reach so far: then the owner is done with every record before it.

    Not waited for longer than the queues stand still: what they lack is built from the copied log.
    """
    reached, since = -1, time.monotonic()
    while True:
        directory = StoreDirectory(None, path, config)
        if directory.queued_end >= end:
            return directory
        now = time.monotonic()
        if directory.queued_end > reached:
            reached, since = directory.queued_end, now
        elif now - since > QUEUES_STAND_STILL:
            return directory
        time.sleep(0.01)


def backup_live(store: MessageStore, target: str) -> BackupReport:
    """Copy a store that this process has open, up to ``flushed_where``."""
    copy = _Copy(store.storage, str(store.path), target, live=True)
    copy.settings()
    end = store.flushed_where
    store.wait_visible(end)
    return copy.up_to(StoreDirectory(store.storage, str(store.path), store.config), end)


class _Copy:
    """One copy in the making."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        target: str,
        *,
        live: bool,
        progress: Progress = lambda done, whole: None,
    ) -> None:
        self.storage = storage
        self.path = path
        self.target = target
        self.report = BackupReport(path, target, live, 0)
        self._progress = progress
        self._window = LogWindow(storage, PIECE)
        self._whole = 1
        _check_target(storage, path, target)
        storage.makedirs(target)

    # -- a directory that nobody writes ------------------------------------------------------------

    def as_it_is(self, directory: StoreDirectory) -> BackupReport:
        """Every file as it lies there, an ``abort`` of a killed owner included."""
        log = directory.log_folders
        files = list(_tree(self.storage, PurePath(self.path), PurePath()))
        log_files: list[QueueFile] = []
        if not log.is_default:
            # The copy is a plain store: its log lies in one folder, whichever it came from.
            log_files = log_files_of(self.storage, log)
            root = PurePath(self.path)
            files = [(name, size) for name, size in files if str(root / name.parent) not in log.all]
        self._whole = max(1, sum(size for _, size in files) + sum(file.size for file in log_files))
        for name, size in files:
            self._copy(str(name), size)
        for file in log_files:
            self._copy(_log_name(file), file.size, source=file.path)
        self.report.end_offset = max(directory.queued_end, directory.min_physical_offset)
        return self._done()

    # -- a directory in use ------------------------------------------------------------------------

    def settings(self) -> None:
        """Offsets of groups and services: first of all, for they must not be ahead of the copied log."""
        folder = PurePath(self.path) / "config"
        if not self.storage.exists(str(folder)):
            return
        for name, size in _tree(self.storage, folder, PurePath("config")):
            if not name.name.endswith(".tmp"):
                self._copy(str(name), size)

    def up_to(self, directory: StoreDirectory, end: int) -> BackupReport:
        """Everything that belongs to the log before ``end``."""
        self.report.end_offset = end
        files = [file for file in directory.log_files if file.begin < end]
        self._whole = max(1, end - (files[0].begin if files else 0))
        for file in files:
            self._copy_log(file, end)
        for kind, unit in (("consumequeue", UNIT), ("batchconsumequeue", BATCH_UNIT_SIZE)):
            self._copy_queues(directory, kind, unit, end)
        for _, _, folder in queue_folders(self.storage, directory.path("consumequeue_ext")):
            for file in files_of(self.storage, folder):
                self._copy(self._name(file.path), file.size)
        self._copy_index(directory, end)
        self._copy_checkpoint(directory.checkpoint, end)
        report = self._done()
        # Queues and index were read while somebody wrote them: see that nothing is missing.
        config = directory.config.replace(store_path_commit_log="", read_only_commit_log_store_paths="")
        if not verify_store(self.target, storage=self.storage, config=config).healthy:
            from penstock.store.opening import open_writable

            open_writable(
                self.target, storage=self.storage, config=config, background=False, rebuild=True
            ).close()
        return report

    def _copy_log(self, file: QueueFile, end: int) -> None:
        try:
            self._copy(_log_name(file), file.size, limit=end - file.begin, source=file.path)
        except FileNotFoundError:
            # The oldest files may be removed while we copy; a hole in the middle is not possible.
            if self.storage.exists(str(PurePath(self.target) / "commitlog")):
                raise

    def _copy_queues(self, directory: StoreDirectory, kind: str, unit: int, end: int) -> None:
        for _, _, folder in queue_folders(self.storage, directory.path(kind)):
            for file in files_of(self.storage, folder):
                try:
                    limit = self._units_before(file, unit, end) * unit
                    if limit:
                        self._copy(self._name(file.path), file.size, limit=limit)
                except FileNotFoundError:
                    continue  # expired meanwhile

    def _units_before(self, file: QueueFile, unit: int, end: int) -> int:
        """How many leading units of a file point before a place in the log."""
        at = 0
        while at < file.size:
            data = bytes(self._window.load(file, at, PIECE // unit * unit))
            whole = len(data) // unit
            heads = data if unit == UNIT else _as_units(data, unit)
            count = int(count_before(heads, end)[0])
            if count < whole or not whole:
                return at // unit + count
            at += whole * unit
        return at // unit

    def _copy_index(self, directory: StoreDirectory, end: int) -> None:
        folder = directory.path("index")
        if not self.storage.exists(folder):
            return
        layout = (directory.config.max_hash_slot_num, directory.config.max_index_num)
        for entry in self.storage.listdir(folder):
            if entry.is_dir or not is_index_name(entry.name):
                continue
            name = str(PurePath("index") / entry.name)
            try:
                slots, capacity = layout_of(self.storage, str(PurePath(folder) / entry.name), layout)
                size = index_size(slots, capacity)
                self._copy(name, size)
            except (StoreError, ValueError, FileNotFoundError):
                continue  # just being made, or expired; what is missed is built from the log
            self._cut_index(str(PurePath(self.target) / name), size, slots, capacity, end)

    def _cut_index(self, path: str, size: int, slots: int, capacity: int, end: int) -> None:
        """Keep the entries of records before the end; the slots are made again from them."""
        mapping = self.storage.open_mapping(path, size, reserve=True)
        try:
            view = mapping.view_writable(0, size)
            try:
                index = Index(view, slots, capacity, True)
                low, high = 1, index.count
                while low < high:
                    middle = (low + high) // 2
                    place = _ENTRY_OFFSET.unpack_from(view, HEADER + 4 * slots + 20 * middle + 4)[0]
                    low, high = (middle + 1, high) if place < end else (low, middle)
                if low > 1:
                    index.cut(low)
                    mapping.sync()
            finally:
                view.release()
        finally:
            mapping.close()
        if low <= 1:
            self.storage.unlink(path)

    def _copy_checkpoint(self, checkpoint: Checkpoint, end: int) -> None:
        """The times stay: they are those of older records. Places in the log are cut."""
        cut = checkpoint._replace(
            master_flushed_offset=min(checkpoint.master_flushed_offset, end),
            confirm_phy_offset=0,
            logics_physical_offset=0
            if checkpoint.logics_physical_offset >= end
            else checkpoint.logics_physical_offset,
            index_msg_timestamp=0,
            physic_msg_timestamp=0,
            logics_msg_timestamp=0,
        )
        self.storage.write_atomic(str(PurePath(self.target) / "checkpoint"), encode_checkpoint(cut))
        self.report.files += 1
        self.report.bytes += CHECKPOINT_SIZE

    # -- files -------------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        return str(PurePath(path).relative_to(self.path))

    def _copy(self, name: str, size: int, *, limit: int | None = None, source: str | None = None) -> None:
        """Copy a file up to ``limit``; its size stays, and what is zero stays a hole."""
        target = PurePath(self.target) / name
        file = QueueFile(source or str(PurePath(self.path) / name), 0, size, True)
        end = size if limit is None else min(size, limit)
        self._window.close()
        at = min(end, self._window.next_data(file, 0)) if size else 0
        self.storage.makedirs(str(target.parent))
        if size == 0:
            self.storage.create_file(str(target))
            self.report.files += 1
            return
        made = self.storage.open_sparse(str(target), size, create=True)
        try:
            while at < end:
                view = self._window.load(file, at)[: end - at]
                if not view:
                    break
                if first_nonzero(view) >= 0:
                    made.write(at, view)
                    self.report.bytes += len(view)
                at += len(view)
                self._progress(self.report.bytes, self._whole)
                at = min(end, self._window.next_data(file, at)) if at < end else at
        finally:
            made.close()
        self.report.files += 1

    def _done(self) -> BackupReport:
        self._window.close()
        if isinstance(self.storage, DiskStorage):
            os.sync()  # thousands of queue files: one call instead of one each
        return self.report


def _log_name(file: QueueFile) -> str:
    return str(PurePath(LOG) / PurePath(file.path).name)


def _as_units(data: bytes, unit: int) -> bytes:
    """The first twenty bytes of each batch unit: place and size are where a simple unit has them."""
    return b"".join(data[at : at + UNIT] for at in range(0, len(data) // unit * unit, unit))


def _check_target(storage: Storage, path: str, target: str) -> None:
    inner, outer = Path(target).absolute(), Path(path).absolute()
    if inner == outer or outer in inner.parents:
        raise UsageError("the copy cannot lie inside of the store", file=target)
    try:
        if storage.listdir(target):
            raise UsageError(
                "there is something already", file=target, hint="name a new or an empty directory"
            )
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise UsageError("this is a file", file=target) from None


def _tree(storage: Storage, folder: PurePath, name: PurePath) -> Iterator[tuple[PurePath, int]]:
    """Every file below a folder, by its name in the store, with its size."""
    for entry in storage.listdir(str(folder)):
        if entry.name in _NOT_COPIED and name == PurePath():
            continue
        if entry.is_dir:
            yield from _tree(storage, folder / entry.name, name / entry.name)
        else:
            yield name / entry.name, entry.size
