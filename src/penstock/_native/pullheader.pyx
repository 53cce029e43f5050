"""The header of a pull, read in one pass. Plain twin: broker.pullheader."""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_CheckExact(object o)


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class PullHeader:
    """What a consumer asks for. `subscription` and `expression_type` are None where it says nothing."""

    cdef public object group, topic, subscription, expression_type
    cdef public int64_t queue_id, offset, count, sys_flag, commit_offset, suspend_ms


cdef inline object required(dict fields, str name):
    cdef PyObject* found = PyDict_GetItem(fields, name)
    if found == NULL or not PyUnicode_CheckExact(<object> found):
        raise KeyError(name)
    return <object> found


cdef int64_t number(dict fields, str name, Py_ssize_t most) except? -1:
    """A number of at most so many digits, with or without a minus; ValueError for any other text."""
    cdef Py_ssize_t n, i = 0
    cdef const char* p = PyUnicode_AsUTF8AndSize(required(fields, name), &n)
    cdef int64_t value = 0
    cdef bint negative = n > 1 and p[0] == 45
    if negative:
        i = 1
    if n - i == 0 or n - i > most:
        raise ValueError(name)
    while i < n:
        if p[i] < 48 or p[i] > 57:
            raise ValueError(name)
        value = value * 10 + (p[i] - 48)
        i += 1
    return -value if negative else value


def read_pull(dict fields not None):
    """The header of a request's fields. KeyError or ValueError for one that a reader has to look at more closely."""
    cdef PullHeader h = PullHeader.__new__(PullHeader)
    cdef PyObject* found
    h.group = required(fields, "consumerGroup")
    h.topic = required(fields, "topic")
    h.queue_id = number(fields, "queueId", 9)
    h.offset = number(fields, "queueOffset", 18)
    h.count = number(fields, "maxMsgNums", 9)
    h.sys_flag = number(fields, "sysFlag", 9)
    h.commit_offset = number(fields, "commitOffset", 18)
    h.suspend_ms = number(fields, "suspendTimeoutMillis", 18)
    found = PyDict_GetItem(fields, "subscription")
    h.subscription = <object> found if found != NULL else None
    found = PyDict_GetItem(fields, "expressionType")
    h.expression_type = <object> found if found != NULL else None
    return h
