"""Records of queue ranges, in order, fetched ahead of whoever reads them.

A range is cut into chunks; several are under way at once on one connection, each a pull after the other,
because only an answer tells where the next pull begins. What was fetched waits in bounded buffers until its
turn comes: who reads slowly is not buried.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from penstock.client.pulling import PullAnswer, PullStatus
from penstock.client.queue import MessageQueue
from penstock.client.subscription import ALL
from penstock.errors import RemotingError
from penstock.spark.network.brokers import Brokers
from penstock.spark.network.queuename import queue_of
from penstock.spark.ranges import QueueRange

CHUNK = 4096
"""Offsets that one chain of pulls reads."""
AHEAD = 8
"""Chunks under way at once."""
BUFFER = 2 << 20
"""Bytes of a chunk that wait; one answer more may come."""
_FILTERED = 1024
"""Messages asked for at once where the broker filters: it looks at no more units for fewer."""
_ODD_ANSWERS = 6
_UNITS = 500
_LOOK = 5.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one answer; or, without any, offsets [begin, end) that are gone."""

    range: QueueRange
    records: bytes | memoryview
    lost: tuple[int, int] | None = None


class Pulls:
    """The answers for some ranges, one after the other. A context manager; for one thread."""

    def __init__(
        self,
        brokers: Brokers,
        ranges: Sequence[QueueRange],
        tags: Sequence[str] | None = None,
        *,
        chunk: int = CHUNK,
        ahead: int = AHEAD,
        buffer: int = BUFFER,
    ) -> None:
        self._brokers = brokers
        self._tags = ALL if tags is None else " || ".join(tags)
        # A broker that filters reads on behind the end of a chunk: the next would read it again.
        step = chunk if tags is None else max((part.end - part.start for part in ranges), default=1)
        self._waiting = deque(
            _Chunk(part, begin, min(begin + step, part.end), buffer)
            for part in ranges
            for begin in range(part.start, part.end, step)
        )
        self._ahead = ahead
        self._changed = threading.Condition()
        self.under_way: deque[_Chunk] = deque()
        self.tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Pulls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.clear()
        self._brokers.loop.call_soon_threadsafe(self._cancel)

    def __iter__(self) -> Iterator[Piece]:
        under_way = self.under_way
        while self._waiting or under_way:
            while self._waiting and len(under_way) < self._ahead:
                chunk = self._waiting.popleft()
                under_way.append(chunk)
                self._brokers.loop.call_soon_threadsafe(self._begin, chunk)
            head = under_way[0]
            while (piece := self._next(head)) is not None:
                yield piece
            under_way.popleft()

    def _next(self, chunk: _Chunk) -> Piece | None:
        """The next piece of a chunk, None behind the last. Every request has its own deadline."""
        with self._changed:
            while not chunk.pieces and not chunk.done:
                self._changed.wait(_LOOK)
            if not chunk.pieces:
                if chunk.error is not None:
                    raise chunk.error
                return None
            piece = chunk.pieces.popleft()
            chunk.held -= len(piece.records)
            paused = chunk.paused is not None and chunk.held < chunk.buffer
        if paused:
            self._brokers.loop.call_soon_threadsafe(chunk.resume)
        return piece

    # -- on the loop -------------------------------------------------------------------------------

    def _begin(self, chunk: _Chunk) -> None:
        task = self._brokers.loop.create_task(self._fetch(chunk))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _cancel(self) -> None:
        for task in self.tasks:
            task.cancel()

    async def _fetch(self, chunk: _Chunk) -> None:
        try:
            queue = queue_of(chunk.range[:2])
            offset, odd = chunk.begin, 0
            while offset < chunk.end:
                await chunk.room()
                most = _FILTERED if self._tags != ALL else chunk.end - offset
                answer = await self._brokers.pull(queue, offset, most, self._tags)
                pieces, following = await self._judge(chunk, queue, offset, answer, sure=odd >= _ODD_ANSWERS)
                if following > offset:
                    odd = 0
                else:
                    odd += 1
                    await asyncio.sleep(min(0.05 * 2**odd, 1.0))
                offset = following
                for piece in pieces:
                    with self._changed:
                        chunk.pieces.append(piece)
                        chunk.held += len(piece.records)
                        self._changed.notify()
        except BaseException as error:
            chunk.error = error if isinstance(error, Exception) else RemotingError("the read was given up")
            if not isinstance(error, Exception):
                raise
        finally:
            with self._changed:
                chunk.done = True
                self._changed.notify()

    async def _judge(
        self, chunk: _Chunk, queue: MessageQueue, offset: int, answer: PullAnswer, *, sure: bool
    ) -> tuple[list[Piece], int]:
        """What an answer brings, and the offset to go on at; the same offset to ask once more.

        The offsets were there when the read was planned. A broker that has just started may not know them
        for a moment, so they are gone only when it says so for a while (``sure``).
        """
        part, status, following = chunk.range, answer.status, answer.next_offset
        if status is PullStatus.FOUND and following > offset:
            piece = Piece(part, answer.body)
            # Brokers pass over units whose messages are gone: the first record tells.
            first = int.from_bytes(answer.body[20:28], "big", signed=True)
            if first <= offset or self._tags != ALL:
                return [piece], following
            lost = await self._removed(queue, offset, min(first, chunk.end))
            return [*(Piece(part, b"", span) for span in lost), piece], following
        if answer.min_offset > offset:
            gone = min(answer.min_offset, chunk.end)
            return [Piece(part, b"", (offset, gone))], gone
        if status is PullStatus.NO_MATCHED_MESSAGE and following > offset:
            if answer.remark != "MESSAGE_WAS_REMOVING":
                return [], following
            lost = await self._removed(queue, offset, min(following, chunk.end))
            return [Piece(part, b"", span) for span in lost], following
        if status is PullStatus.NO_NEW_MESSAGE and offset < following <= answer.max_offset:
            gone = min(following, chunk.end)
            return [Piece(part, b"", (offset, gone))], gone
        if sure:
            return [Piece(part, b"", (offset, chunk.end))], chunk.end
        return [], offset

    async def _removed(self, queue: MessageQueue, begin: int, end: int) -> list[tuple[int, int]]:
        """Which of some offsets lost their messages; the others never had any."""
        lost: list[tuple[int, int]] = []
        while begin < end:
            units = await self._brokers.units(queue, begin, min(end - begin, _UNITS))
            if not units or units[0][0] > begin:
                first = min(end, units[0][0]) if units else end
                lost.append((begin, first))
                begin = first
                continue
            for offset, _, size in units:
                if size and lost and lost[-1][1] == offset:
                    lost[-1] = (lost[-1][0], offset + 1)
                elif size:
                    lost.append((offset, offset + 1))
            begin = units[-1][0] + 1
        return lost


class _Chunk:
    """Offsets [begin, end) of a range, and what came of them and was not read yet."""

    def __init__(self, part: QueueRange, begin: int, end: int, buffer: int) -> None:
        self.range = part
        self.begin = begin
        self.end = end
        self.buffer = buffer
        self.pieces: deque[Piece] = deque()
        self.held = 0
        self.done = False
        self.error: Exception | None = None
        self.paused: asyncio.Event | None = None

    async def room(self) -> None:
        """Wait until there is room for another answer."""
        if self.held < self.buffer:
            return
        self.paused = asyncio.Event()
        # The reader may have made room in this moment, before it could see the event.
        if self.held >= self.buffer:
            await self.paused.wait()
        self.paused = None

    def resume(self) -> None:
        if self.paused is not None:
            self.paused.set()
