"""Text that grows: the bytes of an Arrow text column, and turning whatever a record holds into UTF-8."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock._native.record cimport Span, next_code_point

cdef enum:
    NO_MEMORY = -1
    FULL = -2
    WIDE = 32  # short texts are copied so many bytes at a time: buffers have that much behind their end

cdef struct Text:
    int32_t* offsets
    uint8_t* data
    int64_t used
    int64_t capacity


cdef inline int resize(void** p, int64_t n) noexcept nogil:
    cdef void* grown = realloc(p[0], n if n else 1)
    if grown == NULL:
        return NO_MEMORY
    p[0] = grown
    return 0


cdef inline void free_text(Text* text) noexcept nogil:
    free(text.offsets)
    free(text.data)


cdef inline int make_room(Text* text, int64_t n) noexcept nogil:
    """Room for `n` more bytes. Capacities leave out the WIDE bytes that are always there behind them."""
    cdef int64_t capacity = min(max(text.capacity * 2, text.used + n, 480), INT32_MAX)
    cdef void* grown
    if text.used + n > INT32_MAX:
        return FULL
    grown = realloc(text.data, capacity + WIDE)
    if grown == NULL:
        return NO_MEMORY
    text.data = <uint8_t*> grown
    text.capacity = capacity
    return 0


cdef inline int append(Text* text, const uint8_t* p, int64_t n, bint wide) noexcept nogil:
    """`wide`: WIDE bytes may be read from `p` on, however short the text."""
    cdef int code
    if text.used + n > text.capacity:
        code = make_room(text, n)
        if code != 0:
            return code
    if n == 0:  # there may be no buffer yet
        return 0
    if wide and n <= WIDE:
        memcpy(text.data + text.used, p, 16)
        if n > 16:
            memcpy(text.data + text.used + 16, p + 16, 16)
    else:
        memcpy(text.data + text.used, p, n)
    text.used += n
    return 0


cdef inline bint plain(const uint8_t* p, int64_t n) noexcept nogil:
    """Whether all bytes are ASCII."""
    cdef uint64_t word, seen = 0
    cdef int64_t i = 0
    while i + 8 <= n:
        memcpy(&word, p + i, 8)
        seen |= word
        i += 8
    while i < n:
        seen |= p[i]
        i += 1
    return (seen & 0x8080808080808080ULL) == 0


cdef inline int clean_text(const uint8_t* p, int32_t n, Text* scratch, Span* out) noexcept nogil:
    """Text that is surely UTF-8: as it is, or copied with each malformed piece replaced by U+FFFD."""
    cdef int32_t at = 0, start
    cdef int code
    out.at = p
    out.length = n
    if plain(p, n):
        return 0
    scratch.used = 0
    if scratch.capacity < 3 * <int64_t> n:
        code = make_room(scratch, 3 * <int64_t> n)
        if code != 0:
            return code
    while at < n:
        start = at
        if next_code_point(p, n, &at) == 0xFFFD:
            memcpy(scratch.data + scratch.used, b"\xef\xbf\xbd", 3)
            scratch.used += 3
        else:
            memcpy(scratch.data + scratch.used, p + start, at - start)
            scratch.used += at - start
    out.at = scratch.data
    out.length = <int32_t> scratch.used
    return 0
