"""The body of a client's batch, taken apart and made in one pass. Plain twins in format.batch: decode_client_batch, join_client_batch."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from penstock._native.encode cimport (
    F_BODY, F_DELAY_LEVEL, F_FLAG, F_KEYS, F_PROPERTIES, F_RAW, F_TAGS, F_TOPIC, F_UNIQUE_KEY, F_WAIT, FIELD_COUNT, Item, field, find_slots,
    plain,
)
from penstock._native.endian cimport get16, get32, put16, put32
from penstock._native.record cimport PROPERTIES_LIMIT

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_CheckExact(object o)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    bint PyUnicode_IS_ASCII(object text)
    void* PyUnicode_DATA(object text)
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject** data, Py_ssize_t size) except -1
    char* bytes_of "PyBytes_AS_STRING"(PyObject* data)

cdef enum:
    HEAD = 20
    MOST_EXPECTED = 1 << 20  # one large batch must not make all that follow start as large
    DIGITS = 4
    MOST_KEY = 64

cdef const char* HEX = b"0123456789ABCDEF"


@cython.final
cdef class BatchKeys:
    """The unique ids of a batch: they begin alike and are numbered, but for messages that have one of their own.

    Texts are made when asked for: few ask, and a batch is written without. Plain twin: message.ids.UniqueIdGenerator.many.
    """

    cdef str begin
    cdef int64_t first
    cdef Py_ssize_t count
    cdef Py_ssize_t length     # of each
    cdef dict own
    cdef char text[MOST_KEY]   # the id that was written last

    def __cinit__(self, str begin not None, int64_t first, Py_ssize_t count):
        cdef Py_ssize_t length = len(begin)
        if count < 0 or length + DIGITS > MOST_KEY or not PyUnicode_IS_ASCII(begin) \
                or not plain(<const uint8_t*> PyUnicode_DATA(begin), length):
            raise ValueError(f"{count} ids that begin with {begin!r}")
        self.begin = begin
        self.first = first
        self.count = count
        self.length = length + DIGITS
        memcpy(self.text, PyUnicode_DATA(begin), length)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t index):
        cdef str key
        if index < 0 or index >= self.count:
            raise IndexError(f"id {index} of {self.count}")
        if self.own is not None and index in self.own:
            return self.own[index]
        key = PyUnicode_New(self.length, 127)
        memcpy(PyUnicode_DATA(key), self.numbered(index), self.length)
        return key

    cdef const char* numbered(self, Py_ssize_t index) noexcept:
        """The id of a message that has none of its own, until the next is asked for."""
        cdef uint32_t number = <uint32_t> ((self.first + index) & 0xFFFF)
        cdef char* digits = self.text + self.length - DIGITS
        digits[0] = HEX[number >> 12]
        digits[1] = HEX[number >> 8 & 15]
        digits[2] = HEX[number >> 4 & 15]
        digits[3] = HEX[number & 15]
        return self.text

    cdef int keep(self, Py_ssize_t index, str key) except -1:
        """Remember the id that a message has of its own."""
        if self.own is None:
            self.own = {}
        self.own[index] = key
        return 0


cdef bint next_item(const uint8_t* p, int64_t* at, int64_t end, Item* item) except -1:
    """The message at `at` of a batch that ends at `end`, and where the next one starts; False at the end.

    ValueError when a length leads out of the batch. A message's own total size is ignored, as RocketMQ does: body and
    property lengths say where the next one starts.
    """
    cdef int64_t start, stop, length, properties
    if at[0] >= end:
        return False
    if end - at[0] < HEAD + 2:
        raise ValueError(f"{end - at[0]} bytes are left, too few for a message")
    length = get32(p + at[0] + 16)
    start = at[0] + HEAD
    if length < 0 or start + length + 2 > end:
        raise ValueError(f"a body of {length} bytes with {end - start} left")
    properties = get16(p + start + length)
    stop = start + length + 2 + properties
    if properties < 0 or stop > end:
        raise ValueError(f"properties of {properties} bytes with {end - start - length - 2} left")
    item.flag = get32(p + at[0] + 12)
    item.body = p + start
    item.body_length = length
    item.properties = p + start + length + 2
    item.properties_length = properties
    at[0] = stop
    return True


def split_batch(object body not None):
    """(flag, body, property bytes) of each message, copied. ValueError when a length leads out of the batch."""
    cdef Py_buffer view
    cdef int64_t at = 0
    cdef Item item
    cdef list found = []
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        while next_item(<const uint8_t*> view.buf, &at, view.len, &item):
            found.append((
                item.flag,
                PyBytes_FromStringAndSize(<const char*> item.body, item.body_length),
                PyBytes_FromStringAndSize(<const char*> item.properties, item.properties_length),
            ))
    finally:
        PyBuffer_Release(&view)
    return found


cdef struct Entry:  # of a property string
    const char* name
    Py_ssize_t name_length
    const char* value
    Py_ssize_t length


@cython.final
cdef class BatchWriter:
    """Makes batch bodies from messages. For one thread: `describe` lets others run in the middle of a body, and must not come back here."""

    cdef object message_type
    cdef object describe
    cdef Py_ssize_t slots[FIELD_COUNT]
    cdef PyObject* body  # bytes in the making, which nobody else has seen
    cdef Py_ssize_t used, capacity, expected

    def __cinit__(self, object message_type not None, object describe not None):
        """`describe(message, topic, key)` gives property bytes and unique key of any message, or raises what stands against it."""
        find_slots(message_type, self.slots)
        self.message_type = message_type
        self.describe = describe

    def __dealloc__(self):
        Py_XDECREF(self.body)

    def join(self, list messages not None, Py_ssize_t first, BatchKeys keys not None, object topic, Py_ssize_t most):
        """(body, index of the next message): as many from `first` on as stay within `most` bytes, one at least.

        `keys` has a unique key for each message; that of a message with its own is put in its place.
        """
        cdef Py_ssize_t index = first, before
        if first < 0 or first >= len(messages) or keys.count != len(messages):
            raise ValueError(f"message {first} of {len(messages)}, with {keys.count} keys")
        self.drop()
        while index < len(messages):
            before = self.used
            if not self.add_plain(messages[index], topic, keys, index):
                self.add_described(messages, index, keys, topic)
            if self.used > most and before:
                self.used = before
                break
            index += 1
        return self.take(), index

    cdef int drop(self) except -1:
        """Forget what a body that failed left."""
        Py_XDECREF(self.body)
        self.body = NULL
        self.used = self.capacity = 0
        return 0

    cdef bytes take(self):
        """The body, which is given away: a batch is large, and is not copied once more."""
        _PyBytes_Resize(&self.body, self.used)
        made = <bytes> <object> self.body
        # The next batch is likely to be as large; what is too much is given back by then.
        self.expected = self.used + (self.used >> 3) if self.used <= MOST_EXPECTED else 0
        self.drop()
        return made

    cdef uint8_t* room(self, Py_ssize_t more) except NULL:
        """Where the next `more` bytes go."""
        cdef Py_ssize_t wanted
        if self.used + more > self.capacity:
            wanted = max((self.used + more) * 2, self.expected)
            if self.body == NULL:
                self.body = new_bytes(NULL, wanted)
            else:
                self.capacity = 0  # a failure takes the bytes away
                _PyBytes_Resize(&self.body, wanted)
            self.capacity = wanted
        return <uint8_t*> bytes_of(self.body) + self.used

    cdef uint8_t* start(self, object flag, const char* body, Py_ssize_t body_length, Py_ssize_t properties_length) except NULL:
        """Write a message up to its properties; where those go."""
        cdef Py_ssize_t size = HEAD + body_length + 2 + properties_length
        cdef uint8_t* p
        if not -0x80000000 <= flag <= 0x7FFFFFFF or size > 0x7FFFFFFF:
            raise ValueError(f"a message with flag {flag} and {size} bytes")
        p = self.room(size)
        put32(p, <int32_t> size)
        put32(p + 4, 0)
        put32(p + 8, 0)
        put32(p + 12, <int32_t> flag)
        put32(p + 16, <int32_t> body_length)
        memcpy(p + HEAD, body, body_length)
        put16(p + HEAD + body_length, <int32_t> properties_length)
        self.used += size
        return p + HEAD + body_length + 2

    cdef bint add_plain(self, object message, object topic, BatchKeys keys, Py_ssize_t index) except -1:
        """Append what nearly every message is; False, and nothing appended, for any other."""
        cdef Py_ssize_t* slots = self.slots
        cdef Entry entries[3]
        cdef int count = 0, i
        cdef Py_ssize_t size = 0
        cdef uint8_t* p
        if type(message) is not self.message_type:
            return False
        body, own_topic, delay, wait = (
            field(message, slots[F_BODY]), field(message, slots[F_TOPIC]), field(message, slots[F_DELAY_LEVEL]), field(message, slots[F_WAIT]),
        )
        if not PyBytes_CheckExact(body) or PyBytes_GET_SIZE(body) == 0 or (own_topic is not topic and own_topic != topic):
            return False
        if delay != 0 or wait is not True:
            return False
        if (
            field(message, slots[F_PROPERTIES]) is not None
            or field(message, slots[F_UNIQUE_KEY]) is not None
            or field(message, slots[F_RAW]) is not None
        ):
            return False
        if not (
            add_entry(entries, &count, b"KEYS", 4, field(message, slots[F_KEYS]))
            and add_entry(entries, &count, b"TAGS", 4, field(message, slots[F_TAGS]))
        ):
            return False
        entries[count] = Entry(b"UNIQ_KEY", 8, keys.numbered(index), keys.length)
        count += 1
        for i in range(count):
            size += entries[i].name_length + entries[i].length + 2
        if size > PROPERTIES_LIMIT:
            return False
        p = self.start(field(message, slots[F_FLAG]), PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), size)
        for i in range(count):
            memcpy(p, entries[i].name, entries[i].name_length)
            p += entries[i].name_length
            p[0] = 1
            memcpy(p + 1, entries[i].value, entries[i].length)
            p += entries[i].length + 1
            p[0] = 2
            p += 1
        return True

    cdef int add_described(self, list messages, Py_ssize_t index, BatchKeys keys, object topic) except -1:
        cdef bytes properties
        cdef Py_buffer view
        message = messages[index]
        properties, key = self.describe(message, topic, keys[index])
        if PyBytes_GET_SIZE(properties) > PROPERTIES_LIMIT:
            raise ValueError(f"the properties have {len(properties)} bytes")
        PyObject_GetBuffer(message.body, &view, PyBUF_SIMPLE)
        try:
            memcpy(
                self.start(message.flag, <const char*> view.buf, view.len, PyBytes_GET_SIZE(properties)),
                PyBytes_AS_STRING(properties),
                PyBytes_GET_SIZE(properties),
            )
        finally:
            PyBuffer_Release(&view)
        keys.keep(index, key)
        return 0


cdef bint add_entry(Entry* entries, int* count, const char* name, Py_ssize_t name_length, object text) except -1:
    """Add a property unless it is missing or empty; False for what can't be one as it is."""
    cdef Entry* entry = entries + count[0]
    if text is None:
        return True
    if not PyUnicode_CheckExact(text):
        return False
    entry.value = PyUnicode_AsUTF8AndSize(text, &entry.length)
    if not plain(<const uint8_t*> entry.value, entry.length):
        return False
    if entry.length:
        entry.name = name
        entry.name_length = name_length
        count[0] += 1
    return True
