"""The header and the properties of a send, read in one pass each. Plain twins: broker.sendheader, broker.properties."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_CheckExact(object o)
    object PyUnicode_FromStringAndSize(const char* at, Py_ssize_t size)

LONG = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag", "properties",
    "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch",
)
SHORT = tuple("abcdefghijklm")


cdef inline object required(dict fields, object name):
    cdef PyObject* found = PyDict_GetItem(fields, name)
    if found == NULL or not PyUnicode_CheckExact(<object> found):
        raise KeyError(name)
    return <object> found


cdef int64_t digits(object text, Py_ssize_t most, object name) except -1:
    """A number without a sign of at most so many digits; ValueError for any other text."""
    cdef Py_ssize_t n, i
    cdef const char* p = PyUnicode_AsUTF8AndSize(text, &n)
    cdef int64_t value = 0
    if n == 0 or n > most:
        raise ValueError(name)
    for i in range(n):
        if p[i] < 48 or p[i] > 57:
            raise ValueError(name)
        value = value * 10 + (p[i] - 48)
    return value


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class SendHeader:
    """What a producer says beside the body. `max_reconsume_times` is None where it says nothing."""

    cdef public object group, topic, default_topic, properties, max_reconsume_times
    cdef public int64_t default_queue_nums, queue_id, sys_flag, born_timestamp, flag, reconsume_times
    cdef public bint unit_mode, batch


def read_header(dict fields not None, tuple names not None):
    """The header of a request's fields, in their long or short names.

    KeyError for a field that is missing, ValueError for one that is no plain number of usual length: such a header is
    for a reader that looks closer.
    """
    cdef SendHeader h = SendHeader.__new__(SendHeader)
    cdef PyObject* found
    h.group = required(fields, names[0])
    h.topic = required(fields, names[1])
    h.default_topic = required(fields, names[2])
    h.default_queue_nums = digits(required(fields, names[3]), 9, names[3])
    h.queue_id = digits(required(fields, names[4]), 9, names[4])
    h.sys_flag = digits(required(fields, names[5]), 9, names[5])
    h.born_timestamp = digits(required(fields, names[6]), 15, names[6])
    h.flag = digits(required(fields, names[7]), 9, names[7])
    found = PyDict_GetItem(fields, names[8])
    h.properties = <object> found if found != NULL else ""
    found = PyDict_GetItem(fields, names[9])
    h.reconsume_times = digits(<object> found, 9, names[9]) if found != NULL else 0
    found = PyDict_GetItem(fields, names[10])
    h.unit_mode = found != NULL and <object> found == "true"
    found = PyDict_GetItem(fields, names[11])
    h.max_reconsume_times = digits(<object> found, 9, names[11]) if found != NULL else None
    found = PyDict_GetItem(fields, names[12])
    h.batch = False
    if found != NULL and <object> found != "false":
        h.batch = (<object> found).lower() == "true"
    return h


cdef inline bint named(const uint8_t* p, Py_ssize_t n, const char* name, Py_ssize_t length) noexcept nogil:
    return n == length and memcmp(p, name, length) == 0


def finish_properties(str text not None, bytes suffix not None):
    """(property bytes with `suffix` behind them, unique key, whether a property asks for more, whether to wait).

    None when the string has to be taken apart: it would not read back as it is, has no unique key or two, or holds a name
    that the broker sets or removes itself.
    """
    cdef Py_ssize_t n, at = 0, name_at, value_at, length
    cdef const uint8_t* p = <const uint8_t*> PyUnicode_AsUTF8AndSize(text, &n)
    cdef const uint8_t* key = NULL
    cdef Py_ssize_t key_length = 0
    cdef bint asks = False, waits = True
    cdef bytes made
    if n == 0 or p[n - 1] != 2:
        return None
    while at < n:
        name_at = at
        while at < n and p[at] != 1 and p[at] != 2:
            at += 1
        length = at - name_at
        if length == 0 or p[at] != 1:
            return None
        value_at = at + 1
        while p[at] != 2:
            at += 1
        if at == value_at:
            return None
        if named(p + name_at, length, b"UNIQ_KEY", 8):
            if key != NULL:
                return None
            key = p + value_at
            key_length = at - value_at
        elif named(p + name_at, length, b"WAIT", 4):
            waits = not is_false(p + value_at, at - value_at)
        elif named(p + name_at, length, b"MSG_REGION", 10) or named(p + name_at, length, b"TRACE_ON", 8) \
                or named(p + name_at, length, b"CLUSTER", 7) or named(p + name_at, length, b"POP_CK", 6):
            return None
        elif named(p + name_at, length, b"DELAY", 5) or named(p + name_at, length, b"TRAN_MSG", 8) \
                or named(p + name_at, length, b"__CRC32#", 8) \
                or (length > 9 and memcmp(p + name_at, b"TIMER_DEL", 9) == 0) or (length > 6 and memcmp(p + name_at, b"INNER_", 6) == 0):
            asks = True
        at += 1
    if key == NULL:
        return None
    made = PyBytes_FromStringAndSize(NULL, n + len(suffix))
    memcpy(PyBytes_AS_STRING(made), p, n)
    memcpy(PyBytes_AS_STRING(made) + n, PyBytes_AS_STRING(suffix), len(suffix))
    return made, PyUnicode_FromStringAndSize(<const char*> key, key_length), asks, waits


cdef bint is_false(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef const char* word = b"false"
    if n != 5:
        return False
    for i in range(5):
        if (p[i] | 32) != <uint8_t> word[i]:
            return False
    return True
