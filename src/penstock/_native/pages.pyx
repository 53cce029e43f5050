# cython: language_level=3
"""Pages of memory, compared."""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp


def differing_pages(left, right, Py_ssize_t page=4096):
    """Numbers of the pages in which two buffers of one length differ. What the memory storage watches mappings with."""
    cdef const uint8_t[::1] one = left
    cdef const uint8_t[::1] other = right
    cdef Py_ssize_t size = one.shape[0]
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t count
    if other.shape[0] != size or page <= 0:
        raise ValueError("two buffers of one length and a positive page size")
    result = []
    while position < size:
        count = min(page, size - position)
        if memcmp(&one[position], &other[position], count) != 0:
            result.append(position // page)
        position += count
    return result
