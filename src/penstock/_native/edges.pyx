"""Queue units that no record of the log asks for: before its begin and behind its end. Plain twin: format.edges."""

from libc.stdint cimport int64_t, uint8_t

from penstock._native.endian cimport get32, get64

cdef enum:
    UNIT = 20
    PRE_BLANK = 0x7FFFFFFF


def bad_head_unit(const uint8_t[::1] units not None, int64_t log_begin):
    """Number of the first unit that does not point before the log; -1 if all do. Pre-blank units are fine."""
    cdef Py_ssize_t i
    cdef const uint8_t* u
    for i in range(units.shape[0] // UNIT):
        u = &units[0] + i * UNIT
        if get32(u + 8) == PRE_BLANK and get64(u) == 0:
            continue
        if get64(u) < 0 or get32(u + 8) <= 0 or get64(u) + get32(u + 8) > log_begin:
            return i
    return -1


def bad_tail_unit(const uint8_t[::1] units not None, int64_t log_end, Py_ssize_t start=0):
    """Number of the first unit that is neither empty nor left over from behind the end of the log; -1 if none."""
    cdef Py_ssize_t i
    cdef const uint8_t* u
    for i in range(start, units.shape[0] // UNIT):
        u = &units[0] + i * UNIT
        if get64(u) == 0 and get32(u + 8) == 0 and get64(u + 12) == 0:
            continue
        if get64(u) < log_end or get32(u + 8) <= 0:
            return i
    return -1
