"""The row of index files: which one takes entries, which ones answer (format sections 10.4 to 10.6)."""

from __future__ import annotations

import threading
import time
from pathlib import PurePath

from penstock._native.index import key_hash
from penstock.clock import Clock
from penstock.config import StoreConfig
from penstock.errors import CorruptFile, StoreError
from penstock.files.failure import store_error
from penstock.files.storage import Storage
from penstock.store.indexfile import IndexFile, layout_of
from penstock.store.position import IndexPosition


def index_key(topic: str, key: str, index_type: str | None = None) -> bytes:
    """What is hashed: ``topic#key``; for tags ``topic#T#tags``."""
    return f"{topic}#{index_type}#{key}".encode() if index_type == "T" else f"{topic}#{key}".encode()


def index_name(now_ms: int) -> str:
    """The name of a file made now: local time to the millisecond."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03d}"


class IndexService:
    """All index files of a store. One thread puts; any thread may ask."""

    def __init__(
        self, storage: Storage, folder: str, config: StoreConfig, clock: Clock, *, writable: bool = True
    ) -> None:
        self.storage = storage
        self.folder = folder
        self.slots, self.capacity = config.max_hash_slot_num, config.max_index_num
        self._max_results = config.max_msgs_num_batch
        self._clock = clock
        self._writable = writable
        self._guard = threading.Lock()
        self.files: tuple[IndexFile, ...] = ()
        self._unsynced: set[str] = set()
        self.completed_timestamp = 0
        """End time of the last file that was filled: the checkpoint's indexMsgTimestamp."""

    # -- loading -----------------------------------------------------------------------------------

    def load(self) -> list[str]:
        """Open the files of the folder; the paths of those that could not be (they are left alone)."""
        try:
            names = sorted(e.name for e in self.storage.listdir(self.folder) if not e.is_dir)
        except FileNotFoundError:
            return []
        opened, refused = [], []
        for name in names:
            if not (name.isascii() and name.isdigit()):
                continue
            path = str(PurePath(self.folder) / name)
            try:
                slots, capacity = layout_of(self.storage, path, (self.slots, self.capacity))
                opened.append(IndexFile(self.storage, path, slots, capacity, writable=self._writable))
            except (CorruptFile, OSError, ValueError):
                refused.append(path)
        if opened:
            self.slots, self.capacity = opened[-1].slots, opened[-1].capacity
        self.files = tuple(opened)
        return refused

    def cut(self, position: IndexPosition, unread: list[str]) -> int:
        """After a crash: keep what was synced when ``position`` was written, drop the rest; entries kept.

        ``unread`` are the files that could not be opened: newer ones were being made, and go. Raises
        StoreError when the files do not go with the position: then everything has to be rebuilt.
        """
        for path in unread:
            if PurePath(path).name <= position.file:
                raise StoreError("an index file cannot be read", file=path)
        for path in unread:
            self.storage.unlink(path)
        kept = [f for f in self.files if f.name <= position.file]
        if position.file and (
            not kept or kept[-1].name != position.file or kept[-1].capacity < position.count
        ):
            raise StoreError("the index files do not go with the recorded position", file=self.folder)
        for file in self.files[len(kept) :]:
            file.destroy()
        self.files = tuple(kept)
        if kept:
            last = kept[-1]
            self._reserve(last)
            last.native.begin_timestamp = position.begin_timestamp
            last.cut(position.count)
            last.native.end_timestamp = position.end_timestamp
            # Synced with the entries that follow: until then a crash finds the same position and cuts again.
            self._unsynced.add(last.path)
        if self.entries != position.entries:
            raise StoreError(
                f"the index has {self.entries} entries, {position.entries} were recorded", file=self.folder
            )
        return position.count

    def cut_behind(self, log_end: int) -> None:
        """The log ends here: no entry may point behind it."""
        while self.files and self.files[-1].end_phy_offset >= log_end:
            last = self.files[-1]
            last.cut_behind(log_end)
            if last.native.count > 1 or len(self.files) == 1:
                break
            self.files = self.files[:-1]
            last.destroy()

    def clear(self) -> None:
        """Remove all files: the index is rebuilt from the log."""
        files, self.files = self.files, ()
        for file in reversed(files):
            file.destroy()
        try:
            for entry in self.storage.listdir(self.folder):
                if entry.name.isdigit() and not entry.is_dir:
                    self.storage.unlink(str(PurePath(self.folder) / entry.name))
        except FileNotFoundError:
            pass
        self._unsynced.clear()

    # -- writing -----------------------------------------------------------------------------------

    def writable_file(self) -> IndexFile:
        """The file that takes entries: the last one, or a new one when it is full. Raises DiskFull without
        room.
        """
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            if last.path not in self._unsynced:
                self._reserve(last)
            self._unsynced.add(last.path)
            return last
        name = index_name(self._clock.now_ms())
        if last is not None and name <= last.name:
            name = (
                f"{int(last.name) + 1:017d}"  # the clock went back, or a file was filled within a millisecond
            )
        path = str(PurePath(self.folder) / name)
        try:
            self.storage.makedirs(self.folder)
            made = IndexFile(self.storage, path, self.slots, self.capacity, create=True)
        except OSError as error:
            raise store_error(error, "making an index file") from error
        if last is not None:
            made.native.seed(last.end_timestamp, last.end_phy_offset)
        self._unsynced.add(path)
        self.files = (*self.files, made)
        return made

    def _reserve(self, file: IndexFile) -> None:
        """A file of RocketMQ's is sparse: its blocks must be ours before we store through the mapping."""
        try:
            file.mapping.reserve()
        except OSError as error:
            raise store_error(error, "reserving an index file") from error

    def position(self, log_offset: int) -> IndexPosition:
        """Where the index stands, to be recorded once it is flushed. The caller keeps the dispatcher
        still.
        """
        if not self.files:
            return IndexPosition("", 1, 0, 0, log_offset)
        last = self.files[-1]
        return IndexPosition(
            last.name, last.native.count, last.begin_timestamp, last.end_timestamp, log_offset, self.entries
        )

    @property
    def entries(self) -> int:
        """Number of entries of all files."""
        return sum(file.native.count - 1 for file in self.files)

    def flush(self) -> None:
        """Every file that got entries is on disk."""
        for file in self.files:
            # Entries go in natively, without a word to this object: the count tells.
            if file.path not in self._unsynced or file.native.count == file.synced_count:
                continue
            file.flush()
            if file.synced_count >= file.capacity:
                self._unsynced.discard(file.path)
                self.completed_timestamp = max(self.completed_timestamp, file.end_timestamp)

    # -- asking ------------------------------------------------------------------------------------

    def query_offset(
        self, topic: str, key: str, limit: int, begin: int, end: int, index_type: str | None = None
    ) -> list[int]:
        """Places that may hold the key, newest first (section 10.5); only hash and time are compared."""
        limit = min(limit, self._max_results)
        hashed = key_hash(index_key(topic, key, index_type))
        found: list[int] = []
        for file in reversed(self.files):
            if not self._writable:
                file.native.load_header()
            if file.is_time_matched(begin, end):
                found += file.select_phy_offset(hashed, limit - len(found), begin, end)
            if file.begin_timestamp < begin or len(found) >= limit:
                break
        return found

    @property
    def last_update(self) -> tuple[int, int]:
        """End time and end offset of the newest file."""
        if not self.files:
            return 0, 0
        return self.files[-1].end_timestamp, self.files[-1].end_phy_offset

    def delete_expired(self, min_physical: int) -> int:
        """Remove leading files whose entries all point before ``min_physical``, never the last; how many."""
        count = 0
        while len(self.files) > 1 and self.files[0].end_phy_offset < min_physical:
            first, self.files = self.files[0], self.files[1:]
            first.destroy()
            count += 1
        return count

    def close(self) -> None:
        files, self.files = self.files, ()
        for file in files:
            file.close()
