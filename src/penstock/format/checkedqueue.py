"""A queue whose units are compared with the records of the log."""

from __future__ import annotations

from penstock.format.malformed import Buffer
from penstock.format.queueunit import QUEUE_UNIT_SIZE


class CheckedQueue:
    """One queue, as the pass over the log sees it.

    ``first`` is the queue offset of the first record seen and ``next`` that which the next one should have,
    -1 before the first; ``checked`` counts units that were right or told of, ``missing`` records without one.
    """

    def __init__(self, topic: str, queue_id: int, encoded: bytes, special: bool = False) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.encoded = encoded
        self.special = special
        """Units of this queue are the caller's to check."""
        self.first = self.next = self.first_missing = -1
        self.checked = self.missing = 0
        self.ended = False
        """Whether the queue's files held no unit where one was asked for."""
        self._units: bytes | None = None
        self._units_from = 0

    def set_units(self, units: Buffer, queue_offset: int) -> None:
        """Units from a queue offset on; none: the queue has no more."""
        if len(units) >= QUEUE_UNIT_SIZE or self._units is not None:
            self._units = bytes(units)
        self._units_from = queue_offset
        self.ended = len(units) < QUEUE_UNIT_SIZE

    def unit(self, queue_offset: int) -> bytes | None:
        """The unit of a queue offset, or None outside of the units that were set."""
        number = queue_offset - self._units_from
        if self._units is None or not 0 <= number < len(self._units) // QUEUE_UNIT_SIZE:
            return None
        return self._units[number * QUEUE_UNIT_SIZE : (number + 1) * QUEUE_UNIT_SIZE]

    def restore(
        self, first: int, next: int, checked: int, missing: int, first_missing: int, ended: bool
    ) -> None:
        """Be where another pass over an earlier part of the log left this queue."""
        self.first, self.next, self.checked = first, next, checked
        self.missing, self.first_missing, self.ended = missing, first_missing, ended
