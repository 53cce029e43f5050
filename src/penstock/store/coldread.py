"""Records that are not in memory: found out without waiting, fetched without holding up anybody.

A reader on an event loop must not touch a page that the disk still has: the page fault would stop the whole
process, and every producer with it. Near the end of the log everything is cached; further back ``preadv2``
with ``RWF_NOWAIT`` tells.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from penstock.store.commitlog import CommitLog
from penstock.store.queuetable import QueueTable

HOT_BYTES = 64 << 20
"""What was written so recently is in memory."""
CHUNK = 1 << 20
"""A fetch reads so much at once: whoever reads old messages mostly goes on."""
SHORT_SCAN = 128
"""Units that are looked after at most. A filter must not pass over more of them where messages are old."""
SPAN = 64 << 20
"""A bulk read takes messages that lie no further apart: what lies between them is read along."""
LEAST_BULK = 32
"""For fewer messages it is not worth it."""
FETCHED_SECONDS = 5.0
MOST_FETCHED = 4096
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


@dataclass(frozen=True, slots=True)
class Place:
    """A range of one log file."""

    descriptor: int
    position: int
    size: int


class ColdReads:
    """Looks after the records that a get would touch."""

    def __init__(self, log: CommitLog, queues: QueueTable, *, hot_bytes: int = HOT_BYTES) -> None:
        self._log = log
        self._queues = queues
        self.hot_bytes = hot_bytes
        self._fetched: dict[tuple[int, int], float] = {}
        self._scratch = memoryview(bytearray(64 << 10))

    def young(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the messages from a queue offset on were written so recently that they are in memory."""
        hot = self._log.appender.end_offset - self.hot_bytes
        if hot <= 0 or offset < 0 or not _NOWAIT:
            return True
        queue = self._queues.find(topic, queue_id)
        first = queue.unit(offset) if queue is not None else None
        return first is None or first.physical_offset >= hot

    def missing(self, topic: str, queue_id: int, offset: int, count: int) -> list[Place]:
        """Where a get from this queue offset would have to wait for the disk; empty when it would not.

        Costs one look at the queue while the messages are young.
        """
        if self.young(topic, queue_id, offset):
            return []
        queue = self._queues.find(topic, queue_id)
        assert queue is not None  # what is not there is young
        spans = queue.spans(offset, max(1, min(count, SHORT_SCAN)))
        return [place for place in self._places(spans) if not self._is_cached(place)]

    def _places(self, spans: list[tuple[int, int]]) -> list[Place]:
        """Where records lie; those that follow each other are one place, for each costs a system call."""
        places: list[Place] = []
        begin = end = 0
        for offset, size in spans:
            if size <= 0:
                continue
            if end == offset and end > begin:
                end += size
                continue
            places += self._in_files(begin, end)
            begin, end = offset, offset + size
        return places + self._in_files(begin, end)

    def _in_files(self, begin: int, end: int) -> list[Place]:
        """The places of a part of the log: a record ends where a file does, and the next one follows it."""
        places: list[Place] = []
        while begin < end:
            mapping = self._log.mapping_at(begin)
            if mapping is None:
                break
            stop = min(end, mapping.file_from + mapping.size)
            place = self._place(begin, stop - begin)
            if place is not None:
                places.append(place)
            begin = stop
        return places

    def missing_bulk(self, topic: str, queue_id: int, offset: int, count: int) -> tuple[int, list[Place]]:
        """How many messages one get may take that does not mind their number, and where it would have to
        wait for the disk. They are at most ``SPAN`` bytes of log apart, else it is 0.

        The log between the first and the last is taken for the place, in whole chunks: one that was fetched a
        moment ago is in memory. Tell ``fetched`` what was.
        """
        log = self._log
        queue = self._queues.find(topic, queue_id)
        first = queue.unit(offset) if queue is not None and offset >= 0 else None
        if queue is None or first is None:
            return 0, []
        hot = log.appender.end_offset - self.hot_bytes
        if not _NOWAIT or first.physical_offset >= hot:
            return count, []
        count = min(count, queue.max_offset - offset)
        last = queue.unit(offset + count - 1)
        while last is None or last.physical_offset + last.size - first.physical_offset > SPAN:
            count //= 2
            if count < LEAST_BULK:
                return 0, []
            last = queue.unit(offset + count - 1)
        now = time.monotonic()
        places: list[Place] = []
        step = min(CHUNK, log.config.mapped_file_size_commit_log)
        for begin in range(first.physical_offset // step * step, last.physical_offset + last.size, step):
            place = self._place(begin, step)
            if place is not None and self._fetched.get((place.descriptor, place.position), 0.0) < now:
                places.append(place)
        return count, places

    def fetched(self, places: list[Place]) -> None:
        """Remember for a moment that whole chunks are in memory."""
        if len(self._fetched) > MOST_FETCHED:
            self._fetched.clear()
        until = time.monotonic() + FETCHED_SECONDS
        self._fetched.update({(place.descriptor, place.position): until for place in places})

    def _place(self, offset: int, size: int) -> Place | None:
        mapping = self._log.mapping_at(offset)
        if mapping is None or mapping.fileno() < 0 or size <= 0:
            return None
        return Place(mapping.fileno(), offset - mapping.file_from, size)

    def _is_cached(self, place: Place) -> bool:
        done = 0
        while done < place.size:
            part = self._scratch[: min(len(self._scratch), place.size - done)]
            try:
                read = os.preadv(place.descriptor, [part], place.position + done, _NOWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True  # a file system that can't tell: read as ever
            if read == 0:
                return True
            done += read
        return True

    @staticmethod
    def fetch(places: list[Place]) -> None:
        """Bring ranges into memory. Waits for the disk, without the interpreter lock: for a thread."""
        buffer = bytearray(CHUNK)
        reached = (-1, 0)
        for place in places:
            if place.descriptor == reached[0] and place.position + place.size <= reached[1]:
                continue
            try:
                read = os.preadv(place.descriptor, [buffer], place.position)
                done = read
                while read and done < place.size:
                    read = os.preadv(place.descriptor, [buffer], place.position + done)
                    done += read
            except OSError:
                continue  # the get itself finds out what is wrong there
            reached = (place.descriptor, place.position + done)
