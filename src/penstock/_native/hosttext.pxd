"""Hosts of a record as text, the way message.host writes them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from penstock._native.endian cimport get32

cdef enum:
    HOST_LENGTH = 64


cdef inline int write_number(int64_t value, char* out) noexcept nogil:
    cdef char digits[24]
    cdef int n = 0, length = 0
    if value < 0:
        out[0] = c'-'
        length = 1
        value = -value
    while True:
        digits[n] = <char> (48 + value % 10)
        n += 1
        value //= 10
        if value == 0:
            break
    while n:
        n -= 1
        out[length] = digits[n]
        length += 1
    return length


cdef inline int write_v4(const uint8_t* p, char* out) noexcept nogil:
    cdef int i, length = 0
    for i in range(4):
        if i:
            out[length] = c'.'
            length += 1
        length += write_number(p[i], out + length)
    return length


cdef inline int write_v6(const uint8_t* p, bint dotted, char* out) noexcept nogil:
    """Lower-case groups without leading zeros; the first of the longest runs of zero groups becomes '::'.

    `dotted`: an address that carries an IPv4 one ends as that is written, which depends on the version of Python.
    """
    cdef uint32_t groups[8]
    cdef int i, digit, run = 0, best = 0, best_end = 0, length = 0, last = 8
    cdef bint started
    for i in range(8):
        groups[i] = (p[2 * i] << 8) | p[2 * i + 1]
        run = run + 1 if groups[i] == 0 else 0
        if run > best:
            best = run
            best_end = i + 1
    if dotted and groups[5] == 0xFFFF and best == 5 and best_end == 5:
        last = 6
    if best < 2:
        best_end = -1
    i = 0
    while i < last:
        if i == best_end - best and best_end > 0:
            out[length] = c':'
            out[length + 1] = c':'
            length += 2
            i = best_end
            continue
        if length and out[length - 1] != c':':
            out[length] = c':'
            length += 1
        started = False
        for digit in range(4):
            if started or digit == 3 or (groups[i] >> (12 - 4 * digit)) & 15:
                started = True
                out[length] = b"0123456789abcdef"[(groups[i] >> (12 - 4 * digit)) & 15]
                length += 1
        i += 1
    if last == 6:
        out[length] = c':'
        length += 1 + write_v4(p + 12, out + length + 1)
    return length


cdef inline int write_host(const uint8_t* p, bint v6, bint dotted, char* out) noexcept nogil:
    """`1.2.3.4:5` or `[::1]:5`; `out` has HOST_LENGTH bytes."""
    cdef int length
    if v6:
        out[0] = c'['
        length = 1 + write_v6(p, dotted, out + 1)
        out[length] = c']'
        length += 1
    else:
        length = write_v4(p, out)
    out[length] = c':'
    return length + 1 + write_number(get32(p + (16 if v6 else 4)), out + length + 1)
