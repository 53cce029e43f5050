"""Have memory on its way before it is needed."""

from libc.stdint cimport int32_t, uint8_t

cdef extern from *:
    """
    #define penstock_prefetch_read(p) __builtin_prefetch((p), 0, 1)
    #define penstock_prefetch_write(p) __builtin_prefetch((p), 1, 1)
    """
    void prefetch_read "penstock_prefetch_read"(const void* p) noexcept nogil
    void prefetch_write "penstock_prefetch_write"(const void* p) noexcept nogil

cdef enum:
    CACHE_LINE = 64
    FETCHED = 384


cdef inline void prefetch_bytes(const uint8_t* p, int32_t size) noexcept nogil:
    """The first bytes of a record; the processor sees by itself where a longer one goes on."""
    cdef int32_t at = 0
    while at < size and at < FETCHED:
        prefetch_read(p + at)
        at += CACHE_LINE
