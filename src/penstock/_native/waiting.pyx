"""Puts on an event loop that wait for the disk: their futures are completed together, a group for each sync."""

cimport cython
from asyncio import InvalidStateError

from libc.stdint cimport int64_t

from penstock._native.filestate cimport load_position
from penstock._native.flush cimport Flusher

cdef enum:
    SHARE = 16  # so many futures of one pass of a loop ask for a sync at once


@cython.freelist(256)
@cython.final
cdef class Wait:
    """One future, what it will hold, and the end of the record that has to be on disk."""


@cython.final
cdef class LoopWaiters:
    """Futures of one event loop, in the order of their offsets. To be used on that loop only."""

    def __init__(self, object loop, Flusher flusher not None):
        self.loop = loop
        self.flusher = flusher
        self.create_future = loop.create_future
        self.is_running = loop.is_running
        self.ask_later = self.ask

    cdef object add(self, int64_t end, object result):
        """A future that holds `result` when everything before `end` is on disk; OSError when the disk fails."""
        cdef Wait wait = Wait.__new__(Wait)
        wait.future = self.create_future()
        wait.result = result
        wait.end = end
        if self.last is None:
            self.first = wait
        else:
            self.last.next = wait
        self.last = wait
        # Few syncs for many; but the first of them run beside a long pass of the loop, not after it.
        self.unasked += 1
        if self.unasked == SHARE:
            self.unasked = 1
            self.flusher.want(end)
        elif self.unasked == 1:
            self.loop.call_soon(self.ask_later)
        return wait.future

    def wait(self, int64_t end, object result):
        """As `add`, for callers that are not compiled."""
        return self.add(end, result)

    def ask(self):
        """At the end of a pass of the loop: a sync for everybody who has none under way."""
        self.unasked = 0
        if self.last is not None:
            self.flusher.want(self.last.end)
            self.complete()

    def flushed(self):
        """A sync ended: complete those whose records are on disk, or all when the disk failed."""
        self.complete()

    cdef int complete(self) except -1:
        cdef int64_t where = load_position(&self.flusher.flushed)
        cdef int failed = self.flusher.failed
        cdef Wait wait
        while self.first is not None and (self.first.end <= where or failed):
            wait = self.first
            self.first = wait.next
            if self.first is None:
                self.last = None
            try:
                if wait.end <= where:
                    wait.future.set_result(wait.result)
                else:
                    wait.future.set_exception(OSError(failed, "fdatasync of the commit log failed"))
            except InvalidStateError:
                pass  # cancelled meanwhile; the record is in the log all the same
        return 0

    @property
    def waiting(self):
        """Whether somebody still waits."""
        return self.first is not None
