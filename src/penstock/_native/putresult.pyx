"""What became of messages that were put."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from penstock._native.encode cimport FLUSH_DISK_TIMEOUT, PUT_OK, UNKNOWN_ERROR, Buffer, Encoded, put_hex
from penstock._native.encode import STATUSES
from penstock._native.queue cimport Queue

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void* PyUnicode_DATA(object text)

cdef tuple STATUS_NAMES = STATUSES


@cython.no_gc
@cython.freelist(256)
@cython.final
cdef class PutResult:
    """What became of one message. Offsets are -1 unless it was appended."""

    @property
    def status(self):
        """RocketMQ's PutMessageStatus name."""
        return STATUS_NAMES[self.code]

    @property
    def ok(self):
        return self.code == PUT_OK

    @property
    def topic(self):
        return self.queue.topic if self.queue is not None else None

    @property
    def queue_id(self):
        return self.queue.queue_id if self.queue is not None else -1

    @property
    def end_offset(self):
        """Where the record ends in the log."""
        return self.physical_offset + self.size

    @property
    def message_id(self):
        """The offset message id (spec 4.1), or None when nothing was appended."""
        if self.store_host is None:
            return None
        return (self.store_host + self.physical_offset.to_bytes(8, "big")).hex().upper()

    def timed_out(self):
        """Say that the disk did not answer in time; the message is in the log all the same."""
        self.code = FLUSH_DISK_TIMEOUT

    def __repr__(self):
        if self.queue is None:
            return f"<PutResult {self.status}: {self.reason}>"
        return f"<PutResult {self.status} {self.topic}-{self.queue_id}@{self.queue_offset} at {self.physical_offset}>"


cdef void set_place(PutResult result, const Encoded* e) noexcept:
    """Say where the record went: the append knows."""
    result.queue_offset = e.queue_offset
    result.physical_offset = e.physical_offset
    result.store_timestamp = e.store_timestamp


cdef PutResult appended(const Encoded* e):
    cdef PutResult result = PutResult.__new__(PutResult)
    set_place(result, e)
    result.size = e.size
    result.message_num = e.messages
    result.queue = <Queue> <object> <PyObject*> e.queue.owner
    result.store_host = <bytes> <object> <PyObject*> e.store_host
    return result


cdef PutResult refused(int code, object reason):
    cdef PutResult result = PutResult.__new__(PutResult)
    result.code = code
    result.queue_offset = result.physical_offset = -1
    result.reason = reason
    return result


def refusal(str status, str reason):
    """A result for a message that was not appended."""
    return refused(STATUSES.index(status), reason)


cdef class PutResults:
    """A PutResult per message, made when looked at."""

    def __dealloc__(self):
        free(self.records)

    cdef int hold(self, const Encoded* e) except -1:
        """Keep what a record points to: the encoder may forget its queue and its host before the record is appended."""
        if self.alive is None:
            self.alive = []
        if e.queue.owner != self.held_queue:
            self.held_queue = e.queue.owner
            self.alive.append(<object> <PyObject*> self.held_queue)
        if e.store_host != self.held_host:
            self.held_host = e.store_host
            self.alive.append(<object> <PyObject*> self.held_host)
        return 0

    cdef int fail(self, Py_ssize_t index, PutResult result) except -1:
        """Say that a message is not stored, and why."""
        if self.failures is None:
            self.failures = {}
            self.order = list(range(self.count))
        self.failures[index] = result
        return 0

    cdef int take(self, Buffer* b, int32_t done) except -1:
        """Copy the records of a buffer, of which the first `done` were appended."""
        self.records = <Encoded*> malloc(b.count * sizeof(Encoded))
        if self.records == NULL:
            raise MemoryError()
        memcpy(self.records, b.records, b.count * sizeof(Encoded))
        self.appended_count = done
        return 0

    def __len__(self):
        return self.count

    def __getitem__(self, object key):
        cdef Py_ssize_t i
        cdef PutResult result
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(self.count))]
        i = key
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError("no such result")
        if self.failures is not None:
            if i in self.failures:
                return self.failures[i]
            i = self.order[i]
        if i >= self.appended_count:
            return refused(self.code if self.code else UNKNOWN_ERROR, "not appended")
        result = appended(&self.records[i])
        result.code = self.code
        return result

    @property
    def ok(self):
        """True if every message is stored as asked."""
        return self.failures is None and self.code == PUT_OK and self.appended_count == self.count

    @property
    def end_offset(self):
        """Where the last record ends in the log; -1 when none was appended."""
        if self.appended_count == 0:
            return -1
        return self.records[self.appended_count - 1].physical_offset + self.records[self.appended_count - 1].size

    @property
    def queue_offset(self):
        """That of the first record; -1 when none was appended."""
        return self.records[0].queue_offset if self.appended_count else -1

    def message_ids(self):
        """The offset message ids of all messages, which must all have been appended, with commas between them."""
        cdef Encoded* e
        cdef bytes host
        cdef uint8_t* start
        cdef uint8_t* p
        cdef const uint8_t* before = NULL
        cdef Py_ssize_t i, size = 0, length
        if self.failures is not None or self.appended_count != self.count:
            raise ValueError("not every message was appended")
        if self.count == 0:
            return ""
        for i in range(self.count):
            size += 2 * PyBytes_GET_SIZE(<bytes> <object> <PyObject*> self.records[i].store_host) + 17
        text = PyUnicode_New(size - 1, 127)
        start = p = <uint8_t*> PyUnicode_DATA(text)
        for i in range(self.count):
            e = &self.records[i]
            host = <bytes> <object> <PyObject*> e.store_host
            length = 2 * PyBytes_GET_SIZE(host)
            if p != start:
                p[0] = b","
                p += 1
            if before != NULL and e.store_host == self.records[i - 1].store_host:
                memcpy(p, before, length)  # nearly always: a batch is stored by one broker
            else:
                put_hex_bytes(p, <const uint8_t*> PyBytes_AS_STRING(host), length // 2)
            before = p
            p = put_hex(put_hex(p + length, <uint32_t> (e.physical_offset >> 32), 8), <uint32_t> e.physical_offset, 8)
        return text


cdef uint8_t* put_hex_bytes(uint8_t* p, const uint8_t* source, Py_ssize_t count) noexcept:
    cdef Py_ssize_t i
    for i in range(count):
        p = put_hex(p, source[i], 2)
    return p
