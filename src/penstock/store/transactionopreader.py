"""The op queue as a checking pass reads it."""

from __future__ import annotations

from penstock.message.topic import TRANS_OP_HALF_TOPIC
from penstock.store.face import ServiceStore
from penstock.store.transactionops import parse_op_body

_PULL = 32


class OpReader:
    """Reads op messages from ``begin`` on, as far as a question needs.

    ``half_begin`` is where the pass starts in the half queue. Names below it are *late*: a verdict on a half
    message that the progress has passed. They still matter to a copy that remembers its original offset.
    """

    def __init__(self, store: ServiceStore, queue_id: int, begin: int, half_begin: int) -> None:
        self._store = store
        self._queue_id = queue_id
        self._begin = begin
        self._next = begin
        self._half_begin = half_begin
        self._names: set[int] = set()
        # Of each op message read: its offset, the highest offset it names (-1: none), whether a name is late.
        self._read: list[tuple[int, int, bool]] = []

    def names(self, half_offset: int) -> bool:
        """Whether some op message names this half offset. A no is certain: all of them were read."""
        while half_offset not in self._names:
            if not self._pull():
                return False
        return True

    def read_all(self) -> None:
        """Read to the end of the queue, so that ``done_before`` knows of every op message."""
        while self._pull():
            pass

    def done_before(self, half_offset: int, *, reached_end: bool) -> int:
        """The op progress that goes with a half progress.

        An op message is done when the progress passed everything it names. One with late names must also have
        been held against every copy in the half queue, so it waits for a pass that reached the end.
        """
        progress = self._begin
        for offset, highest, late in self._read:
            if highest >= half_offset or (late and not reached_end):
                break
            progress = offset + 1
        return progress

    def _pull(self) -> bool:
        """Read some more; False at the end of the queue."""
        answer = self._store.get(TRANS_OP_HALF_TOPIC, self._queue_id, self._next, _PULL)
        if not answer.messages:
            if answer.next_begin_offset <= self._next:
                return False
            if not self._read:
                self._begin = answer.next_begin_offset
            self._next = answer.next_begin_offset
            return self._next < self._store.max_offset(TRANS_OP_HALF_TOPIC, self._queue_id)
        for record in answer.messages:
            named = parse_op_body(record)
            self._names.update(named)
            late = any(name < self._half_begin for name in named)
            self._read.append((record.queue_offset, max(named, default=-1), late))
            self._next = record.queue_offset + 1
        return True
