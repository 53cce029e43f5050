"""Queues as the check of a part sees them, and as all parts together left them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from penstock._native.checkedqueue import CheckedQueue
from penstock.files.storage import Storage
from penstock.format.batchunit import BATCH_UNIT_SIZE
from penstock.spark.jobs.passstate import BatchState, Key, PartResult, PassState, QueueState
from penstock.store.fault import Fault
from penstock.store.queueverifier import QueueFolders, QueueVerifier, UnitFiles


class PartQueues(QueueVerifier):
    """Queues that begin where the pass stands, or at their first record of the part."""

    def __init__(
        self,
        storage: Storage,
        folders: QueueFolders,
        log_begin: int,
        report: Callable[[Fault], None],
        begin: int,
        state: PassState | None,
    ) -> None:
        super().__init__(storage, folders, log_begin, report)
        self._begin = begin
        self._known = state
        self._batch_begins: dict[Key, tuple[int, bool]] = {}

    def open(self, topic: str, encoded: bytes, queue_id: int) -> CheckedQueue:
        key = (topic, queue_id)
        checked = super().open(topic, encoded, queue_id)
        batch = self._batch.get(key)
        if batch is not None:
            fresh = batch.next
            if self._known is None:
                batch.next = first_batch_unit(batch.files, self._begin)
            elif (known := self._known.batches.get(key)) is not None:
                batch.next = known.next
            self._batch_begins[key] = (batch.next, batch.next == fresh)
        elif self._known is not None and (queue := self._known.queues.get(key)) is not None:
            checked.restore(queue.first, queue.next, 0, 0, -1, queue.ended)
        return checked

    def take_states(self, result: PartResult) -> None:
        for key, simple in self._simple.items():
            checked = simple.checked
            first = checked.first
            if self._known is not None and key in self._known.queues:
                first = self._known.queues[key].next
            result.queues[key] = QueueState(
                first, checked.next, checked.ended, checked.checked, checked.missing, checked.first_missing
            )
        for key, batch in self._batch.items():
            begin, is_fresh = self._batch_begins[key]
            result.batches[key] = BatchState(begin, batch.next, is_fresh, batch.checked, batch.missing)
        result.lights = {key: light.checked.next for key, light in self._light.items()}
        result.lost_records = self.lost_records


def first_batch_unit(files: UnitFiles, physical: int) -> int:
    """Number of the first unit of a batch queue that does not point before a place of the log."""
    low = files.begin
    high = (files.files[-1].begin + files.files[-1].size) // BATCH_UNIT_SIZE if files.files else low
    while low < high:
        middle = (low + high) // 2
        offset, size = struct.unpack_from(">qi", files.read(middle, 1).ljust(12, b"\0"))
        if size > 0 and offset < physical:
            low = middle + 1
        else:
            high = middle
    return low


class JoinedQueues(QueueVerifier):
    """Queues as a pass over all parts left them."""

    def restore(self, state: PassState, lights: dict[Key, int], lost_records: int) -> None:
        """Be behind the pass."""
        for (topic, queue_id), queue in state.queues.items():
            checked = self.open(topic, topic.encode(), queue_id)
            checked.restore(
                queue.first, queue.next, queue.checked, queue.missing, queue.first_missing, queue.ended
            )
        for (topic, queue_id), known in state.batches.items():
            self.open(topic, topic.encode(), queue_id)
            batch = self._batch[topic, queue_id]
            batch.next, batch.checked, batch.missing = known.next, known.checked, known.missing
        for (topic, queue_id), number in lights.items():
            light = self._light_queue(topic, queue_id)
            if light is not None:
                light.checked.next = number
        self.lost_records = lost_records
