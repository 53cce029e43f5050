"""One file of the memory storage: its bytes, and every version of them that a crash may leave behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakSet

from penstock._native.mapping import Mapping
from penstock._native.pages import differing_pages
from penstock.clock import Clock

PAGE = 4096

Value = TypeVar("Value")


class History(Generic[Value]):
    """The values something had since it was last made durable, each with its time; the first is the durable
    one."""

    __slots__ = ("values",)

    def __init__(self, durable: Value) -> None:
        self.values: list[tuple[int, Value]] = [(0, durable)]

    @property
    def latest(self) -> Value:
        return self.values[-1][1]

    @property
    def settled(self) -> bool:
        """Only one value is possible after a crash."""
        return len(self.values) == 1

    def record(self, time: int, value: Value) -> None:
        if value != self.latest:
            self.values.append((time, value))

    def settle(self, time: int) -> None:
        """What was current at ``time`` is durable now; what came later is still open."""
        while len(self.values) > 1 and self.values[1][0] <= time:
            del self.values[0]


class MemoryFile:
    """An inode. ``tick`` gives each recorded version its time; ``before`` may refuse a call (injected
    faults); ``guard`` is the storage's own lock."""

    def __init__(
        self,
        path: str,
        body: bytearray,
        *,
        tick: Callable[[], int],
        before: Callable[[str, MemoryFile], None],
        clock: Clock,
        guard: threading.RLock,
    ) -> None:
        self.path = path
        self.body = body
        self.reserved = False
        self.mtime_ms = clock.now_ms()
        self.allocated: set[int] = set()
        self.sizes: History[int] = History(len(body))
        self.pages: dict[int, History[bytes]] = {}
        self.mappings: WeakSet[Mapping] = WeakSet()
        self._guard = guard
        self._shadow: bytearray | None = None
        self._tick = tick
        self._before = before
        self._clock = clock
        self._sync_began: dict[int, int] = {}

    def page(self, number: int) -> bytes:
        """The page as it is now (as last observed when it is watched), zeros behind the end."""
        source = self.body if self._shadow is None else self._shadow
        found = bytes(source[number * PAGE : (number + 1) * PAGE])
        return found.ljust(PAGE, b"\0")

    def watch(self) -> None:
        """From now on somebody writes into the memory directly: compare it with a copy whenever observed."""
        with self._guard:
            if self._shadow is None:
                self._shadow = bytearray(self.body)

    def observe(self) -> None:
        """Record the pages that changed since the last look."""
        with self._guard:
            shadow = self._shadow
            if shadow is None:
                return
            for number in differing_pages(self.body, shadow, PAGE):
                begin = number * PAGE
                found = bytes(self.body[begin : begin + PAGE])
                self._record(number, self.page(number), found.ljust(PAGE, b"\0"))
                shadow[begin : begin + len(found)] = found

    def write(self, position: int, data: bytes) -> None:
        """Write inside the file; a version of each page that it touches."""
        with self._guard:
            self.observe()
            first, last = position // PAGE, (position + len(data) - 1) // PAGE
            before = {number: self.page(number) for number in range(first, last + 1)}
            self.body[position : position + len(data)] = data
            if self._shadow is not None:
                self._shadow[position : position + len(data)] = data
            for number, old in before.items():
                self._record(number, old, self.page(number))

    def resize(self, size: int) -> None:
        """Cut or lengthen with zeros. The old size stays possible after a crash until a sync."""
        with self._guard:
            self.observe()
            old_size = len(self.body)
            first, last = min(size, old_size) // PAGE, (old_size - 1) // PAGE
            before = {number: self.page(number) for number in range(first, last + 1)}
            if size < old_size:
                del self.body[size:]
            else:
                self.body.extend(bytes(size - old_size))
            if self._shadow is not None:
                self._shadow = bytearray(self.body)
            self.sizes.record(self._tick(), size)
            for number, old in before.items():
                self._record(number, old, self.page(number))

    def _record(self, number: int, old: bytes, new: bytes) -> None:
        if old == new:
            return
        self.allocated.add(number)
        self.mtime_ms = self._clock.now_ms()
        history = self.pages.get(number)
        if history is None:
            history = self.pages[number] = History(old)
        history.record(self._tick(), new)

    # What a Mapping over this file's memory tells its owner.

    def before(self, operation: str) -> None:
        self._before(operation, self)
        if operation == "sync":
            self._sync_began[threading.get_ident()] = self._tick()

    def on_sync(self) -> None:
        """What was written before the sync began is durable; what came meanwhile is not."""
        with self._guard:
            began = self._sync_began.pop(threading.get_ident(), self._tick())
            self.sizes.settle(began)
            for number in list(self.pages):
                self.pages[number].settle(began)
                if self.pages[number].settled:
                    del self.pages[number]
