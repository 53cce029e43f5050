# cython: language_level=3
"""Pages of a mapping kept in memory: ``mlock`` and its undoing."""

from libc.errno cimport errno
from libc.stddef cimport size_t
from posix.mman cimport mlock, munlock

from penstock._native.mapping cimport Mapping

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void* address, size_t length, int advice)
    enum: MADV_WILLNEED


def lock_memory(Mapping mapping not None):
    """Keep the pages in memory and have them read ahead of need: 0, or the errno of the system's refusal."""
    cdef int result = 0
    if mapping.state.fd < 0:
        return 0
    mapping.pin()
    try:
        with nogil:
            if mlock(mapping.state.base, <size_t>mapping.state.size) != 0:
                result = errno
            # Also where locking is refused: it only asks for the pages.
            madvise(<void*>mapping.state.base, <size_t>mapping.state.size, MADV_WILLNEED)
        return result
    finally:
        mapping.unpin()


def unlock_memory(Mapping mapping not None):
    """Let the system take the pages again. Nothing to do for a mapping that is closed."""
    if mapping.closed or mapping.state.fd < 0:
        return
    mapping.pin()
    try:
        with nogil:
            munlock(mapping.state.base, <size_t>mapping.state.size)
    finally:
        mapping.unpin()
