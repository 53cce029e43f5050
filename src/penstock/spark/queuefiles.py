"""Units of single queues, for a task: only the files of those queues are opened, however many there are."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config import StoreConfig
from penstock.errors import StoreError
from penstock.spark.places import Place
from penstock.store.queuetable import AnyQueue, QueueTable
from penstock.store.queueunits import read_units


@dataclass(frozen=True)
class QueueFileSizes:
    """Sizes of the files of queues, found once by the driver; 0: as RocketMQ makes them."""

    simple: int = 0
    batch: int = 0

    @classmethod
    def of(cls, config: StoreConfig) -> QueueFileSizes:
        return cls(config.mapped_file_size_consume_queue, config.mapper_file_size_batch_consume_queue)

    @property
    def config(self) -> StoreConfig:
        default = StoreConfig()
        return default.replace(
            mapped_file_size_consume_queue=self.simple or default.mapped_file_size_consume_queue,
            mapper_file_size_batch_consume_queue=self.batch or default.mapper_file_size_batch_consume_queue,
        )


class QueueFiles:
    """Queues of one store, each opened when it is first asked for. Reads only; one thread."""

    def __init__(self, place: Place, sizes: QueueFileSizes) -> None:
        self._place = place
        self._table = QueueTable(place.storage, place.root, sizes.config, writable=False)
        self._opened: set[tuple[str, int]] = set()

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> tuple[bytes, int]:
        """As ``ReadOnlyStore.units``. Raises FileNotFoundError when a file goes while it is read."""
        return read_units(self._queue(topic, queue_id), offset, count)

    def first_offset(self, topic: str, queue_id: int) -> int:
        """The first offset whose record is there, now."""
        self._opened.discard((topic, queue_id))
        return self._queue(topic, queue_id).min_offset

    def close(self) -> None:
        self._table.close()

    def _queue(self, topic: str, queue_id: int) -> AnyQueue:
        if (topic, queue_id) in self._opened:
            return self._table.get(topic, queue_id)
        if self._place.storage.exists(f"{self._table.batch_folder}/{topic}"):
            self._table.batch_topics.add(topic)
        queue = self._table.get(topic, queue_id)
        try:
            queue.load()
            queue.recover()
        except StoreError as error:
            raise StoreError(f"queue {queue_id} of {topic} cannot be read: {error}") from error
        files = self._place.log_files
        queue.correct_min_offset(files[0].begin if files else -1)
        self._opened.add((topic, queue_id))
        return queue
