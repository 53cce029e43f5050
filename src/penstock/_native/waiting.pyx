"""Puts on an event loop that wait for the disk: written together, synced together, their futures completed together."""

cimport cython
from asyncio import InvalidStateError

from cpython.list cimport PyList_GET_SIZE
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from penstock._native.append import HOOK, ROLLED
from penstock._native.append cimport Appender
from penstock._native.encode cimport CREATE_MAPPED_FILE_FAILED, NEED_HOOK, PUT_OK, SERVICE_NOT_AVAILABLE, Encoded
from penstock._native.filestate cimport FileState, load_position
from penstock._native.putresult cimport PutResult, appended, refused, set_place
from penstock._native.record cimport BLANK_LENGTH
from penstock._native.threads cimport wall_ms

cdef enum:
    SHARE = 32           # so many records of one pass of a loop are written, and their sync is asked for, at once
    SHARE_BYTES = 65536
    KEPT_BYTES = 1 << 20  # one large message must not keep its buffer for ever


@cython.final
cdef class Group:
    """Futures whose records are written by one call, and what they will hold."""

    def __cinit__(self):
        self.futures = []
        self.results = []


@cython.final
cdef class LoopWaiters:
    """Those who wait on one event loop, in the order of their records. To be used on that loop only.

    A record is encoded at once and appended with the others of the same pass of the loop: one lock, one system call.
    """

    def __init__(self, object loop, Appender appender not None):
        self.loop = loop
        self.appender = appender
        self.create_future = loop.create_future
        self.is_running = loop.is_running
        self.ask_later = self.ask

    def __dealloc__(self):
        free(self.records.data)
        free(self.records.records)

    cdef object put(self, object message, int64_t now):
        """A future of the PutResult, or what stands against it; None when nobody may wait for the disk."""
        cdef Encoded* e
        cdef object future
        cdef bint waits
        cdef int code = self.appender.encoder.encode(message, &self.records, now if now >= 0 else wall_ms(), False)
        if code == NEED_HOOK:
            return HOOK
        if code != PUT_OK:
            return refused(code, self.appender.encoder.reason)
        e = &self.records.records[self.records.count - 1]
        waits = e.waits
        if not waits or not self.has_room():
            self.records.count -= 1
            self.records.used -= e.size
            self.place()
            return ROLLED if waits else None
        if self.gathered is None:
            self.gathered = Group.__new__(Group)
            self.forgets = self.appender.encoder.forgets
        self.now = now
        future = self.create_future()
        # The result keeps what the record points to: its queue and its host.
        self.gathered.results.append(appended(e))
        self.gathered.futures.append(future)
        # The first ones are synced beside a long pass of the loop, not after it.
        if self.records.count >= SHARE or self.records.used >= SHARE_BYTES:
            self.place()
        else:
            self.ask_once()
        return future

    cdef int ask_once(self) except -1:
        """Have `ask` called when this pass of the loop ends."""
        if not self.asking:
            self.loop.call_soon(self.ask_later)
            self.asking = True
        return 0

    cdef bint has_room(self) noexcept:
        """Whether the file takes all that is gathered."""
        cdef FileState* f = self.appender.file
        return f != NULL and load_position(&f.wrote) + self.records.used + BLANK_LENGTH <= f.size

    def wait(self, int64_t end, PutResult result not None):
        """A future that holds `result` when everything before `end`, which is in the log, is on disk.

        Like that of every put it holds an OSError when the disk fails.
        """
        cdef Group group = Group.__new__(Group)
        self.place()
        future = self.create_future()
        group.futures.append(future)
        group.results.append(result)
        group.end = end
        self.join(group)
        self.ask_once()
        return future

    cdef void join(self, Group group) noexcept:
        """Complete a group that is in the log when it is on disk."""
        if self.last is None:
            self.first = group
        else:
            self.last.next = group
        self.last = group

    def ask(self):
        """At the end of a pass of the loop, or before the store is closed on it: append and sync what was put."""
        self.asking = False
        self.place()
        if self.last is not None:
            self.appender.flusher.want(self.last.end)
            self.complete()  # those of a sync that ended meanwhile

    def flushed(self):
        """A sync ended: complete those whose records are on disk, or all when the disk failed."""
        self.complete()

    cdef int place(self) except -1:
        """Append what was gathered. Futures whose records did not get into the log are completed here."""
        cdef Group group = self.gathered
        cdef int64_t done = 0, i
        cdef object answer
        cdef list late
        if group is None:
            return 0
        self.gathered = None
        try:
            answer = self.append(&done)
        except Exception as error:
            answer = error
        late = group.futures[done:]
        if late:
            del group.futures[done:]
        for i in range(done):
            set_place(<PutResult> group.results[i], &self.records.records[i])
            group.end = self.records.records[i].physical_offset + self.records.records[i].size
        self.records.count = 0
        self.records.used = 0
        if self.records.capacity > KEPT_BYTES:
            free(self.records.data)
            self.records.data = NULL
            self.records.capacity = 0
        if done:
            self.join(group)
            self.appender.flusher.want(group.end)
        for future in late:
            finish(future, answer)
        return 0

    cdef object append(self, int64_t* done):
        """How many of the records were appended, and what became of the others."""
        cdef Appender appender = self.appender
        cdef int code
        cdef int32_t count = 0
        done[0] = 0
        if appender.unavailable is not None:
            return refused(SERVICE_NOT_AVAILABLE, appender.unavailable)
        # The queues are to be looked up again, or another thread took the room and its file may still be in the making.
        if self.forgets != appender.encoder.forgets or not self.has_room():
            return ROLLED
        try:
            code = appender.append_all(&self.records, self.now if self.now >= 0 else wall_ms(), False, self.now < 0, False, &count)
        finally:
            done[0] = count
        if code < 0:
            return OSError(-code, "write to the commit log failed", appender.mapping.path if appender.mapping is not None else None)
        if code != PUT_OK:
            return refused(code, appender.why if code == CREATE_MAPPED_FILE_FAILED else "the put lock is held for too long")
        return None

    cdef int complete(self) except -1:
        cdef int64_t where = load_position(&self.appender.flusher.flushed)
        cdef int failed = self.appender.flusher.failed
        cdef Group group
        cdef Py_ssize_t i
        while self.first is not None and (self.first.end <= where or failed):
            group = self.first
            self.first = group.next
            if self.first is None:
                self.last = None
            for i in range(PyList_GET_SIZE(group.futures)):
                if group.end <= where:
                    finish(group.futures[i], group.results[i])
                else:
                    finish(group.futures[i], OSError(failed, "fdatasync of the commit log failed"))
        return 0

    @property
    def waiting(self):
        """Whether somebody still waits."""
        return self.first is not None


cdef int finish(object future, object answer) except -1:
    try:
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
    except InvalidStateError:
        pass  # cancelled meanwhile; whatever is in the log is there all the same
    return 0


@cython.final
cdef class LoopPuts:
    """The way of event loops into the log. Thread-safe: each loop has its own waiters."""

    def __cinit__(self, Appender appender not None):
        self.appender = appender

    def put(self, object message, int64_t now=-1):
        """As `Appender.put`: where that would wait for the disk, a future of the PutResult.

        The answer, or what the future holds, is ROLLED when the file has no room: the next one may still be in the
        making, and nothing was stored.
        """
        cdef Appender appender = self.appender
        cdef bint waits
        cdef PutResult result
        cdef LoopWaiters waiters
        if appender.sync and not appender.flusher.memory:
            if appender.unavailable is not None:
                return refused(SERVICE_NOT_AVAILABLE, appender.unavailable)
            answer = self.loop_waiters().put(message, now)
            if answer is not None:
                return answer
        answer = appender.store(message, now, False, False, True, 1, &waits)
        if appender.sync and type(answer) is PutResult:
            result = answer
            if result.code == PUT_OK and not appender.flusher.memory:
                appender.flusher.want(result.physical_offset + result.size)
            elif result.code == PUT_OK and waits:
                result.code = appender.wait_disk(result.physical_offset + result.size)
        return answer

    cdef LoopWaiters loop_waiters(self):
        """Those of the running loop. Asking for that loop is a system call in some versions of Python: a thread that
        has one which still runs is not asked again."""
        cdef unsigned long thread = PyThread_get_thread_ident()
        cdef LoopWaiters waiters = self.waiters
        # Both calls below may let another thread in, which leaves its own waiters here.
        if waiters is None or self.waiters_thread != thread or not waiters.is_running():
            waiters = self.find_waiters()
            self.waiters = waiters
            self.waiters_thread = thread
        return waiters

    def wait_with(self, object find_waiters):
        """Where `put` finds the waiters of the running loop; None: they are gone, and so is what it knew."""
        self.find_waiters = find_waiters
        self.waiters = None
