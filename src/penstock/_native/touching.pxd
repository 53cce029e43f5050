"""Bytes that may have to come from the disk, fetched without holding up other Python threads."""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

cdef enum:
    TOUCHED_PAGE = 4096

cdef struct Touched:
    const uint8_t* at
    Py_ssize_t length

cdef extern from *:
    """
    static inline void penstock_touch(const unsigned char *p) { (void) *(const volatile unsigned char *) p; }
    """
    void penstock_touch(const uint8_t* p) noexcept nogil


cdef inline int touch_all(list records, Py_ssize_t begin, Py_ssize_t end) except -1:
    """Have the pages of records in memory: buffers whose bytes stay where they are while the list lives, or None."""
    cdef Touched* spans
    cdef Py_buffer view
    cdef Py_ssize_t i, n = 0, at
    if end <= begin:
        return 0
    spans = <Touched*> malloc((end - begin) * sizeof(Touched))
    if spans == NULL:
        raise MemoryError()
    try:
        for i in range(begin, end):
            if records[i] is None:
                continue
            PyObject_GetBuffer(records[i], &view, PyBUF_SIMPLE)
            spans[n].at = <const uint8_t*> view.buf
            spans[n].length = view.len
            PyBuffer_Release(&view)
            n += 1
        with nogil:
            for i in range(n):
                at = 0
                while at < spans[i].length:
                    penstock_touch(spans[i].at + at)
                    at += TOUCHED_PAGE
                if spans[i].length:
                    penstock_touch(spans[i].at + spans[i].length - 1)
    finally:
        free(spans)
    return 0
