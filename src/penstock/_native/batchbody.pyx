"""The body of a client's batch, taken apart in one pass. Plain twin: format.batch.decode_client_batch."""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from penstock._native.endian cimport get16, get32

cdef enum:
    HEAD = 20


def split_batch(object body not None):
    """(flag, body, property bytes) of each message, copied. ValueError when a length leads out of the batch.

    A message's own total size is ignored, as RocketMQ does: body and property lengths say where the next one starts.
    """
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef int64_t at = 0, end, start, stop, length, properties
    cdef list found = []
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*> view.buf
        end = view.len
        while at < end:
            if end - at < HEAD + 2:
                raise ValueError(f"{end - at} bytes are left, too few for a message")
            length = get32(p + at + 16)
            start = at + HEAD
            if length < 0 or start + length + 2 > end:
                raise ValueError(f"a body of {length} bytes with {end - start} left")
            properties = get16(p + start + length)
            stop = start + length + 2 + properties
            if properties < 0 or stop > end:
                raise ValueError(f"properties of {properties} bytes with {end - start - length - 2} left")
            found.append((
                get32(p + at + 12),
                PyBytes_FromStringAndSize(<const char*> p + start, length),
                PyBytes_FromStringAndSize(<const char*> p + start + length + 2, properties),
            ))
            at = stop
    finally:
        PyBuffer_Release(&view)
    return found
