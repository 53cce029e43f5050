"""Scans over queue units, and the search for the next whole record behind damage."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr

from penstock._native.endian cimport get32, get64
from penstock._native.record cimport (
    CHECK_CRC, CHECK_OFFSET, CHECK_TORN, MAGIC_V1, MAGIC_V2, REC_OK, Record, check_record, parse_record, penstock_crc_setup,
)

penstock_crc_setup()

cdef enum:
    UNIT = 20


cdef inline bint is_blank(const uint8_t* unit) noexcept nogil:
    """A unit that holds a place of the queue without a record (spec 9.4)."""
    return get32(unit + 8) == 0x7FFFFFFF and get64(unit) == 0


def scan_units(const uint8_t[::1] units not None):
    """(valid units, end of the last one's record, its tags code) from the start to the first invalid unit (spec 9.5)."""
    cdef Py_ssize_t i, n = units.shape[0] // UNIT
    cdef int64_t end = -1, tags = 0, offset
    cdef int32_t size
    cdef const uint8_t* u
    for i in range(n):
        u = &units[0] + i * UNIT
        offset = get64(u)
        size = get32(u + 8)
        if offset < 0 or size <= 0:
            return i, end, tags
        if size != 0x7FFFFFFF:
            end = offset + size
            tags = get64(u + 12)
    return n, end, tags


def count_before(const uint8_t[::1] units not None, int64_t physical):
    """How many leading units point before `physical` (spec 9.6), and the end of the last of those records."""
    cdef Py_ssize_t i, n = units.shape[0] // UNIT
    cdef int64_t end = -1, offset
    cdef int32_t size
    cdef const uint8_t* u
    for i in range(n):
        u = &units[0] + i * UNIT
        offset = get64(u)
        size = get32(u + 8)
        if offset < 0 or size <= 0 or offset >= physical:
            return i, end
        if size != 0x7FFFFFFF:
            end = offset + size
    return n, end


def first_at(const uint8_t[::1] units not None, int64_t physical):
    """Number of the first unit that points at or behind `physical`; the number of units if none does.

    Units are ordered but for blanks, which point nowhere: they are stepped over.
    """
    cdef Py_ssize_t low = 0, n = units.shape[0] // UNIT, high = n, middle, probe
    while low < high:
        middle = probe = (low + high) // 2
        while probe < high and is_blank(&units[0] + probe * UNIT):
            probe += 1
        if probe < high and get64(&units[0] + probe * UNIT) < physical:
            low = probe + 1
        else:
            high = middle
    while low < n and is_blank(&units[0] + low * UNIT):
        low += 1
    return low


def find_record(const uint8_t[::1] buffer not None, int64_t start, int64_t base_offset, int64_t not_before):
    """Position of the first whole record at or after `start` that says it lies there, and its length; (-1, 0) if none.

    `not_before`: a record stored earlier than this is a leftover. A record cut off by the buffer's end is not found.
    """
    cdef int64_t n = buffer.shape[0], at = start
    cdef const uint8_t* p
    cdef const uint8_t* found
    cdef Record r
    cdef int64_t answer = -1
    cdef int32_t length = 0
    if n == 0 or start < 0 or start >= n:
        return -1, 0
    p = &buffer[0]
    with nogil:
        while at + 8 <= n:
            # Both magic codes begin with 0xDA.
            found = <const uint8_t*> memchr(p + at + 4, 0xDA, n - at - 4)
            if found == NULL:
                break
            at = found - p - 4
            if at + 8 > n:
                break
            if (
                parse_record(p + at, n - at, &r) == REC_OK and r.store_timestamp >= not_before
                and check_record(p + at, &r, base_offset + at, CHECK_CRC | CHECK_OFFSET | CHECK_TORN) == REC_OK
            ):
                answer = at
                length = r.size
                break
            at += 1
    return answer, length


def first_nonzero(const uint8_t[::1] buffer not None):
    """Position of the first byte that is not zero, -1 if all are."""
    cdef Py_ssize_t i = 0, n = buffer.shape[0]
    cdef const uint8_t* p
    cdef Py_ssize_t answer = -1
    if n == 0:
        return -1
    p = &buffer[0]
    with nogil:
        while i + 8 <= n and (<const int64_t*> (p + i))[0] == 0:
            i += 8
        while i < n:
            if p[i]:
                answer = i
                break
            i += 1
    return answer


def record_header(const uint8_t[::1] record not None):
    """Fields that dispatching from Python needs, or None if the bytes are no whole record:
    (size, queue id, queue offset, physical offset, sys flag, store timestamp, body position, body length,
    topic position, topic length, properties position, properties length)."""
    cdef Record r
    if record.shape[0] == 0 or parse_record(&record[0], record.shape[0], &r) != REC_OK:
        return None
    return (
        r.size, r.queue_id, r.queue_offset, r.physical_offset, r.sys_flag, r.store_timestamp, r.body_at, r.body_length,
        r.topic_at, r.topic_length, r.properties_at, r.properties_length,
    )
