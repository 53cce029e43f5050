"""All consume queues of a store: found by name, made on first use, kept within the descriptor limit."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import PurePath

from penstock._native.queue import Queue
from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.files.filecache import FileCache
from penstock.files.storage import Storage
from penstock.message.topic import LMQ_PREFIX, is_path_safe, max_topic_bytes
from penstock.store.batchconsumequeue import BatchConsumeQueue
from penstock.store.consumequeue import ConsumeQueue
from penstock.store.consumequeueext import ConsumeQueueExt, trim
from penstock.store.queuefolder import remove_cut_off

QueueKey = tuple[str, int]
NAME_LIMIT = 255
"""Bytes of a file name, as file systems have it."""

AnyQueue = ConsumeQueue | BatchConsumeQueue


def storable_queue(topic: object, queue_id: object) -> bool:
    """Whether such a queue can have a folder. What is in a log already is taken as far as that goes."""
    if not isinstance(topic, str) or not isinstance(queue_id, int) or not 0 <= queue_id < 2**31:
        return False
    try:
        return len(topic.encode()) <= NAME_LIMIT and is_path_safe(topic)
    except UnicodeEncodeError:
        return False


def legal_queue(topic: object, queue_id: object) -> bool:
    """Whether messages may be put into such a queue: stricter, a topic has its length limit."""
    return (
        storable_queue(topic, queue_id)
        and isinstance(topic, str)
        and len(topic.encode()) <= max_topic_bytes(topic)
    )


class QueueTable:
    """``(topic, queue id)`` to queue. ``find`` never makes one, ``get`` does (in memory only)."""

    def __init__(self, storage: Storage, root: str, config: StoreConfig, *, writable: bool = True) -> None:
        self.storage = storage
        self.config = config
        self.writable = writable
        self.simple_folder = str(PurePath(root) / "consumequeue")
        self.batch_folder = str(PurePath(root) / "batchconsumequeue")
        self.ext_folder = str(PurePath(root) / "consumequeue_ext")
        self.batch_topics: set[str] = set()
        self.extensions: dict[QueueKey, ConsumeQueueExt] = {}
        self.incomplete = False
        """A queue has lost a file that the log can give back."""
        self._cache = FileCache(storage, config.max_open_files, writable=writable)
        self._queues: dict[QueueKey, AnyQueue] = {}
        self._light_count = 0
        self._attached: OrderedDict[QueueKey, ConsumeQueue] = OrderedDict()
        # Readers of older files need some too.
        self._attached_limit = config.max_open_files - min(config.max_open_files // 2, 256)
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[AnyQueue]:
        return iter(list(self._queues.values()))

    def find(self, topic: str, queue_id: int) -> AnyQueue | None:
        return self._queues.get((topic, queue_id))

    @property
    def light_count(self) -> int:
        """How many light queues there are."""
        return self._light_count

    def get(self, topic: str, queue_id: int) -> AnyQueue:
        """The queue, made in memory if it is new. The name must be legal."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            with self._guard:
                queue = self._queues.get(key)
                if queue is None:
                    queue = self._queues[key] = self._make(topic, queue_id)
                    self._light_count += topic.startswith(LMQ_PREFIX)
        return queue

    def native(self, topic: str, queue_id: int) -> Queue | None:
        """For the encoder: the native side of the queue, None when the name is not allowed."""
        return self.get(topic, queue_id).native if legal_queue(topic, queue_id) else None

    def _make(self, topic: str, queue_id: int) -> AnyQueue:
        if topic in self.batch_topics:
            folder = f"{self.batch_folder}/{topic}/{queue_id}"
            size = self.config.mapper_file_size_batch_consume_queue
            return BatchConsumeQueue(
                self.storage, folder, topic, queue_id, size, writable=self.writable, cache=self._cache
            )
        folder = f"{self.simple_folder}/{topic}/{queue_id}"
        size = self.config.mapped_file_size_consume_queue
        queue = ConsumeQueue(self.storage, folder, topic, queue_id, size, self._cache)
        if self.config.enable_consume_queue_ext:
            queue.native.special = True
        return queue

    def extension(self, topic: str, queue_id: int) -> ConsumeQueueExt:
        """The extension file of a queue."""
        key = (topic, queue_id)
        ext = self.extensions.get(key)
        if ext is None:
            folder = str(PurePath(self.ext_folder) / topic / str(queue_id))
            size = self.config.mapped_file_size_consume_queue_ext
            ext = self.extensions[key] = ConsumeQueueExt(self.storage, folder, size, writable=self.writable)
            ext.load()
        return ext

    # -- loading -----------------------------------------------------------------------------------

    def load(self) -> list[StoreError]:
        """Find the queues on disk and the end of each; what was wrong with single ones.

        Queues that have lost a file end before it and are ``incomplete``: the log has the rest. Of one whose
        files have a wrong size nothing can be told: its error is raised, or, read-only, it is left out.
        """
        faults: list[StoreError] = []
        self.batch_topics |= {topic for topic, _ in self._folders(self.batch_folder)}
        for folder in (self.simple_folder, self.batch_folder):
            for topic, queue_id in self._folders(folder):
                if not storable_queue(topic, queue_id) or (
                    folder == self.simple_folder and topic in self.batch_topics
                ):
                    continue
                queue = self.get(topic, queue_id)
                try:
                    queue.load()
                    if self.writable:
                        cut_off = remove_cut_off(self.storage, queue.folder, queue.cut_off)
                        self.incomplete |= bool(cut_off)
                        faults += cut_off
                    queue.recover()
                    if self.writable and isinstance(queue, ConsumeQueue):
                        queue.erase_behind()
                except StoreError as error:
                    if self.writable:
                        raise
                    faults.append(error)
        for topic, queue_id in self._folders(self.ext_folder):
            if storable_queue(topic, queue_id):
                try:
                    self.extension(topic, queue_id).recover()
                except StoreError as error:
                    faults.append(error)
        return faults

    def _folders(self, folder: str) -> list[QueueKey]:
        try:
            topics = [entry.name for entry in self.storage.listdir(folder) if entry.is_dir]
        except FileNotFoundError:
            return []
        found = []
        for topic in topics:
            for entry in self.storage.listdir(f"{folder}/{topic}"):
                if entry.is_dir and entry.name.isascii() and entry.name.isdigit():
                    found.append((topic, int(entry.name)))
        return found

    # -- all of them -------------------------------------------------------------------------------

    @property
    def units(self) -> int:
        """Sum of the maximum offsets."""
        return sum(queue.max_offset for queue in self)

    @property
    def max_physical_offset(self) -> int:
        """End of the last record that any queue knows, -1 if none does."""
        return max((queue.max_physical_offset for queue in self._queues.values()), default=-1)

    def attach(self, queue: ConsumeQueue) -> None:
        """Open the file that a queue's staged units go to; the queue that was not used longest lets go of
        its own.
        """
        key = (queue.topic, queue.queue_id)
        queue.attach()
        self._attached[key] = queue
        self._attached.move_to_end(key)
        while len(self._attached) > self._attached_limit:
            self._attached.popitem(last=False)[1].detach()

    def truncate_dirty(self, physical: int) -> int:
        """Drop units at or behind a place in the log, in every queue; how many."""
        dropped = 0
        for queue in self:
            if queue.max_physical_offset >= physical:
                dropped += queue.truncate_dirty(physical)
        return dropped

    def correct_min_offsets(self, min_physical: int) -> None:
        for queue in self:
            queue.correct_min_offset(min_physical)

    def start_offsets(self) -> None:
        """New messages continue where the units end."""
        for queue in self:
            queue.native.next_offset = queue.max_offset

    def flush(self) -> None:
        for queue in self:
            queue.flush()
        for ext in list(self.extensions.values()):
            ext.flush()

    def delete_expired(self, min_physical: int) -> int:
        count = 0
        for queue in self:
            count += queue.delete_expired(min_physical)
            queue.correct_min_offset(min_physical)
            ext = self.extensions.get((queue.topic, queue.queue_id))
            if ext is not None and isinstance(queue, ConsumeQueue):
                trim(queue, ext)
        return count

    def forget(self, topic: str) -> None:
        """Drop queues of a topic that never held anything: its kind is about to change."""
        with self._guard:
            for key in [key for key in self._queues if key[0] == topic]:
                del self._queues[key]
                self._light_count -= key[0].startswith(LMQ_PREFIX)

    def remove_expired(self, topic: str, min_physical: int) -> int:
        """Remove the files of a topic's queues whose records are all gone from the log; how many queues.

        The queues stay, empty: messages that come all the same go on with their numbers. After the next
        opening there are none, and they begin at 0.
        """
        count = 0
        for queue in [each for each in self if each.topic == topic]:
            key = (queue.topic, queue.queue_id)
            if queue.max_physical_offset > min_physical or queue.native.next_offset > queue.max_offset:
                continue
            self._attached.pop(key, None)
            queue.destroy()
            ext = self.extensions.pop(key, None)
            if ext is not None:
                ext.destroy()
            count += 1
        if count:
            for folder in (self.simple_folder, self.batch_folder, self.ext_folder):
                try:
                    self.storage.rmdir(f"{folder}/{topic}")
                except OSError:
                    pass  # other queues are left in it, or it never was
        return count

    def close(self) -> None:
        for queue in self:
            queue.close()
        for ext in self.extensions.values():
            ext.close()
        self._attached.clear()
        self._cache.close()
