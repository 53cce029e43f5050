"""Stored messages as objects: a field is decoded when it is asked for, a body is copied only then."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_SetItem
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from penstock._native.record cimport REC_OK, SYS_BORN_V6, SYS_STORE_V6, Record, Span, next_property, parse_record

cdef extern from "Python.h":
    object PyObject_GenericGetAttr(object o, object name)
    object PyUnicode_DecodeUTF8(const char* s, Py_ssize_t size, const char* errors)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void* PyUnicode_1BYTE_DATA(object o)

cdef str KEYS = "KEYS", TAGS = "TAGS", UNIQ_KEY = "UNIQ_KEY", WAIT = "WAIT"
cdef str N_TOPIC = "topic", N_BODY = "body", N_TAGS = "tags", N_KEYS = "keys", N_PROPERTIES = "properties"
cdef str N_QUEUE_OFFSET = "queue_offset", N_STORE_TIMESTAMP = "store_timestamp"
cdef enum:
    SHARED_TEXTS = 64    # a power of two
    SHARED_LENGTH = 24

cdef struct Shared:
    int32_t length
    uint8_t bytes[SHARED_LENGTH]

cdef Shared shared_bytes[SHARED_TEXTS]
cdef list shared_texts = [None] * SHARED_TEXTS
cdef str last_topic = ""
cdef char last_topic_bytes[128]
cdef Py_ssize_t last_topic_length = 0


cdef inline str decode(const uint8_t* p, Py_ssize_t n):
    """UTF-8 text; what is malformed shows as U+FFFD, as it does in Java."""
    cdef Py_ssize_t i
    cdef uint8_t seen = 0
    cdef str made
    for i in range(n):
        seen |= p[i]
    if seen < 128 and n > 1:
        made = PyUnicode_New(n, 127)
        memcpy(PyUnicode_1BYTE_DATA(made), p, n)
        return made
    return PyUnicode_DecodeUTF8(<const char*> p, n, b"replace")


cdef inline str shared(const uint8_t* p, int32_t n):
    """As `decode`, for short texts of which there are few: equal ones are mostly one object."""
    cdef int32_t at
    cdef str text
    if n > SHARED_LENGTH:
        return decode(p, n)
    at = (p[n - 1] + p[n >> 1] * 7 + n * 31) & (SHARED_TEXTS - 1)
    if shared_bytes[at].length == n and memcmp(shared_bytes[at].bytes, p, n) == 0:
        return <str> shared_texts[at]
    # Of the copy: the bytes of a log that is cut and written again may change meanwhile.
    shared_bytes[at].length = 0
    memcpy(shared_bytes[at].bytes, p, n)
    text = decode(shared_bytes[at].bytes, n)
    shared_texts[at] = text
    shared_bytes[at].length = n
    return text


cdef inline str property_name(Span name):
    """Names that every message has are shared."""
    if name.length == 4:
        if memcmp(name.at, b"KEYS", 4) == 0:
            return KEYS
        if memcmp(name.at, b"TAGS", 4) == 0:
            return TAGS
        if memcmp(name.at, b"WAIT", 4) == 0:
            return WAIT
    elif name.length == 8 and memcmp(name.at, b"UNIQ_KEY", 8) == 0:
        return UNIQ_KEY
    return decode(name.at, name.length)


cdef str host_text(const uint8_t* p, bint v6):
    cdef int length = 16 if v6 else 4
    port = int.from_bytes(p[length:length + 4], "big", signed=True)
    if not v6:
        return f"{p[0]}.{p[1]}.{p[2]}.{p[3]}:{port}"
    import ipaddress

    return f"[{ipaddress.IPv6Address(p[:16])}]:{port}"


@cython.no_gc_clear  # the collector would forget whose buffer it has to give back
cdef class Slab:
    def __cinit__(self, object source not None, int64_t file_from=0):
        PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
        self.open = True
        self.base = <const uint8_t*> self.view.buf
        self.length = self.view.len
        self.file_from = file_from

    def __dealloc__(self):
        if self.open:
            PyBuffer_Release(&self.view)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        # Its own export: the source may be closed for others meanwhile.
        PyBuffer_FillInfo(buffer, self, <void*> self.base, self.length, 1, flags)


cdef StoredMessage stored_message(Slab slab, int64_t position, int64_t available, int64_t queue_offset):
    """The record at `position`, or None if the bytes there are no whole record."""
    cdef StoredMessage m = StoredMessage.__new__(StoredMessage)
    if available > slab.length - position:
        available = slab.length - position
    if position < 0 or parse_record(slab.base + position, available, &m.r) != REC_OK:
        return None
    m.slab = slab
    m.p = slab.base + position
    m.shown_queue_offset = queue_offset if queue_offset >= 0 else m.r.queue_offset
    return m


def message_at(Slab slab not None, int64_t position):
    """The stored message at a position of a slab, or None."""
    return stored_message(slab, position, slab.length - position, -1)


@cython.no_gc
@cython.freelist(256)
cdef class StoredMessage:
    """One message of the log. Views into it stay valid while it lives; `body` is a copy."""

    def __getattribute__(self, str name):
        # Those that a consumer reads of every message. The names in a program's code are the very objects that are
        # compared here; the way through the type's descriptors takes twice the time.
        if name is N_BODY:
            return self.body_bytes()
        if name is N_TOPIC:
            return self.topic_text()
        if name is N_PROPERTIES:
            return self.properties_map()
        if name is N_TAGS or name is N_KEYS:
            if self.parsed is None:
                self.properties_map()
            return self.tags_text if name is N_TAGS else self.keys_text
        if name is N_QUEUE_OFFSET:
            return self.shown_queue_offset
        if name is N_STORE_TIMESTAMP:
            return self.r.store_timestamp
        return PyObject_GenericGetAttr(self, name)

    cdef str topic_text(self):
        global last_topic, last_topic_length
        cdef Record* r = &self.r
        if r.topic_length == last_topic_length and memcmp(last_topic_bytes, self.p + r.topic_at, r.topic_length) == 0:
            return last_topic
        text = decode(self.p + r.topic_at, r.topic_length)
        if r.topic_length <= 128:
            last_topic = text
            last_topic_length = r.topic_length
            memcpy(last_topic_bytes, self.p + r.topic_at, r.topic_length)
        return text

    cdef bytes body_bytes(self):
        return PyBytes_FromStringAndSize(<const char*> self.p + self.r.body_at, self.r.body_length)

    @property
    def topic(self):
        return self.topic_text()

    @property
    def queue_id(self):
        return self.r.queue_id

    @property
    def queue_offset(self):
        return self.shown_queue_offset

    @property
    def physical_offset(self):
        return self.r.physical_offset

    @property
    def size(self):
        return self.r.size

    @property
    def sys_flag(self):
        return self.r.sys_flag

    @property
    def flag(self):
        return self.r.flag

    @property
    def body_crc(self):
        return self.r.body_crc

    @property
    def born_timestamp(self):
        return self.r.born_timestamp

    @property
    def store_timestamp(self):
        return self.r.store_timestamp

    @property
    def reconsume_times(self):
        return self.r.reconsume_times

    @property
    def prepared_transaction_offset(self):
        return self.r.prepared_offset

    @property
    def born_host(self):
        return host_text(self.p + 48, (self.r.sys_flag & SYS_BORN_V6) != 0)

    @property
    def store_host(self):
        return host_text(self.p + self.r.store_host_at, (self.r.sys_flag & SYS_STORE_V6) != 0)

    @property
    def message_id(self):
        """The offset message id: store host and physical offset in hexadecimal."""
        cdef int length = 20 if self.r.sys_flag & SYS_STORE_V6 else 8
        cdef bytes host = PyBytes_FromStringAndSize(<const char*> self.p + self.r.store_host_at, length)
        return (host + self.r.physical_offset.to_bytes(8, "big", signed=True)).hex().upper()

    cdef dict properties_map(self):
        cdef Span name, value
        cdef int32_t at = 0
        cdef const uint8_t* p = self.p + self.r.properties_at
        cdef str key, text
        if self.parsed is None:
            self.parsed = {}
            while next_property(p, self.r.properties_length, &at, &name, &value):
                key = property_name(name)
                if key is TAGS:
                    text = self.tags_text = shared(value.at, value.length)
                else:
                    text = decode(value.at, value.length)
                    if key is KEYS:
                        self.keys_text = text
                    elif key is UNIQ_KEY:
                        self.unique_text = text
                PyDict_SetItem(self.parsed, key, text)
        return self.parsed

    @property
    def properties(self):
        """The parsed properties. The same dict each time: copy it before changing it."""
        return self.properties_map()

    @property
    def properties_bytes(self):
        return PyBytes_FromStringAndSize(<const char*> self.p + self.r.properties_at, self.r.properties_length)

    @property
    def tags(self):
        if self.parsed is None:
            self.properties_map()
        return self.tags_text

    @property
    def keys(self):
        if self.parsed is None:
            self.properties_map()
        return self.keys_text

    @property
    def unique_key(self):
        if self.parsed is None:
            self.properties_map()
        return self.unique_text

    @property
    def body(self):
        return self.body_bytes()

    @property
    def body_view(self):
        """The body where it lies."""
        cdef int64_t at = self.p - self.slab.base + self.r.body_at
        return PyMemoryView_FromObject(self.slab)[at:at + self.r.body_length].toreadonly()

    @property
    def raw(self):
        """The whole record where it lies."""
        cdef int64_t at = self.p - self.slab.base
        return PyMemoryView_FromObject(self.slab)[at:at + self.r.size].toreadonly()

    def __reduce__(self):
        return revive, (bytes(self.raw), self.shown_queue_offset)

    def __repr__(self):
        return f"<StoredMessage {self.topic}-{self.queue_id}@{self.queue_offset} at {self.physical_offset}, {self.r.body_length} bytes>"


def revive(bytes record not None, int64_t queue_offset):
    """A stored message from a copy of its record (pickling copies)."""
    return stored_message(Slab(record), 0, len(record), queue_offset)
