# cython: language_level=3
"""A mapped file for native code.

A function that keeps a ``FileState*`` across a release of the interpreter lock must keep the ``Mapping`` pinned
meanwhile (``pin``/``unpin``): ``close`` waits for pins and views alike before it unmaps and closes the descriptor.
"""

from penstock._native.filestate cimport StatedFile


cdef class Mapping(StatedFile):
    cdef object owner
    cdef object __weakref__
    cdef readonly bint closed
    cdef readonly bint reserved
    cdef readonly Py_ssize_t exports
    cdef bint _export_writable
    cdef bint _holds_memory
    cdef bint _holds_buffer
    cdef Py_buffer _memory
    cdef Py_buffer _buffer

    cdef int pin(self) except -1
    cdef void unpin(self) noexcept
    cdef void _release(self) noexcept
