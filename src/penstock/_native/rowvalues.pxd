"""Values of a row that its record does not hold as they are shown."""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from penstock._native.record cimport SYS_STORE_V6, Record
from penstock._native.text cimport Text, append

cdef inline int64_t microseconds(int64_t milliseconds) noexcept nogil:
    """A time that a damaged record claims may be any number: what does not fit becomes the nearest that does."""
    if milliseconds > INT64_MAX // 1000:
        return INT64_MAX
    return milliseconds * 1000 if milliseconds > -(INT64_MAX // 1000) else -INT64_MAX


cdef inline uint8_t digit(uint8_t value) noexcept nogil:
    return value + 48 if value < 10 else value + 55


cdef inline int add_message_id(Text* text, const uint8_t* p, const Record* r) noexcept nogil:
    """Store host and physical offset in upper-case hexadecimal; the record has both as bytes."""
    cdef uint8_t out[56]
    cdef int i, n = 20 if r.sys_flag & SYS_STORE_V6 else 8
    for i in range(n):
        out[2 * i] = digit(p[r.store_host_at + i] >> 4)
        out[2 * i + 1] = digit(p[r.store_host_at + i] & 15)
    for i in range(8):
        out[2 * (n + i)] = digit(p[28 + i] >> 4)
        out[2 * (n + i) + 1] = digit(p[28 + i] & 15)
    return append(text, out, 2 * (n + 8), False)
