"""Parsing and checking records, and walking a run of them. Plain twins: format.record, format.walk, format.javahash."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from penstock._native.endian cimport get16, get32, get64

penstock_crc_setup()

cdef const char* CRC_NAME = b"__CRC32#\x01"

STOPS = ("end", "blank", "zero", "magic", "length", "crc", "offset", "short", "torn")


cdef int parse_record(const uint8_t* p, int64_t available, Record* r) noexcept nogil:
    """Fill `r` from the bytes at `p`. Touches nothing past `available`, whatever the lengths in there say."""
    cdef int64_t at, size
    cdef int32_t length
    if available < 8:
        return REC_SHORT
    r.size = get32(p)
    r.magic = get32(p + 4)
    if r.magic == MAGIC_BLANK:
        return REC_BLANK
    if r.magic != MAGIC_V1 and r.magic != MAGIC_V2:
        return REC_ZERO if r.magic == 0 and r.size == 0 else REC_MAGIC
    if r.size < 91 or r.size > RECORD_LIMIT:
        return REC_LENGTH
    size = r.size
    if available < size:
        return REC_SHORT
    r.body_crc = get32(p + 8)
    r.queue_id = get32(p + 12)
    r.flag = get32(p + 16)
    r.queue_offset = get64(p + 20)
    r.physical_offset = get64(p + 28)
    r.sys_flag = get32(p + 36)
    r.born_timestamp = get64(p + 40)
    at = 68 if r.sys_flag & SYS_BORN_V6 else 56
    r.store_timestamp = get64(p + at)
    r.store_host_at = <int32_t> (at + 8)
    at += 28 if r.sys_flag & SYS_STORE_V6 else 16
    if at + 16 > size:
        return REC_LENGTH
    r.reconsume_times = get32(p + at)
    r.prepared_offset = get64(p + at + 4)
    length = get32(p + at + 12)
    at += 16
    if length < 0 or at + length + 3 > size:
        return REC_LENGTH
    r.body_at = <int32_t> at
    r.body_length = length
    at += length
    if r.magic == MAGIC_V1:
        length = <signed char> p[at]
        at += 1
    else:
        length = get16(p + at)
        at += 2
    if length < 0 or at + length + 2 > size:
        return REC_LENGTH
    r.topic_at = <int32_t> at
    r.topic_length = length
    at += length
    length = get16(p + at)
    at += 2
    r.properties_at = <int32_t> at
    r.properties_length = length if length > 0 else 0
    if at + r.properties_length != size:
        return REC_LENGTH
    return REC_OK


cdef inline bint all_zero(const uint8_t* p, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if p[i]:
            return False
    return True


cdef bint lost_sector(const uint8_t* p, const Record* r, int64_t offset) noexcept nogil:
    """True if a sector's whole share of topic and properties is zeros: the write of that sector never happened (S2).

    The body has its CRC; what follows it has none, and the length fields alone would let the record pass.
    """
    cdef int64_t at = r.topic_at, end = r.size, edge
    if r.topic_length == 0 and r.properties_length == 0:
        return False
    while at < end:
        edge = ((offset + at) // 512 + 1) * 512 - offset
        if edge > end:
            edge = end
        if all_zero(p + at, edge - at):
            # An empty property area ends a record with its two zero length bytes: those alone prove nothing.
            if not (r.properties_length == 0 and at >= r.properties_at - 2):
                return True
        at = edge
    return False


cdef bint property_crc_holds(const uint8_t* p, const Record* r) noexcept nogil:
    cdef int32_t i
    cdef int64_t value = 0, scale = 1
    cdef const uint8_t* at = p + r.size - CRC_RESERVED
    if r.properties_length < CRC_RESERVED or memcmp(at, CRC_NAME, 9) != 0 or at[19] != 2:
        return False
    for i in range(10):
        if at[9 + i] < 48 or at[9 + i] > 57:
            return False
        value += (at[9 + i] - 48) * scale
        scale *= 10
    return value == <int64_t> (penstock_crc32(p, r.size - CRC_RESERVED) & 0x7FFFFFFF)


cdef void put_crc_property(uint8_t* record, int32_t size) noexcept nogil:
    """Fill the reserved last 20 bytes (spec 2.6) once every other byte is final."""
    cdef uint32_t value = penstock_crc32(record, size - CRC_RESERVED) & 0x7FFFFFFF
    cdef uint8_t* at = record + size - CRC_RESERVED
    cdef int i
    memcpy(at, CRC_NAME, 9)
    for i in range(10):
        at[9 + i] = 48 + value % 10
        value //= 10
    at[19] = 2


cdef int check_record(const uint8_t* p, const Record* r, int64_t offset, int checks) noexcept nogil:
    if checks & CHECK_PROPERTY_CRC:
        if not property_crc_holds(p, r):
            return REC_CRC
    elif checks & CHECK_CRC and r.body_length > 0:
        if <int32_t> (penstock_crc32(p + r.body_at, r.body_length) & 0x7FFFFFFF) != r.body_crc:
            return REC_CRC
    if checks & CHECK_OFFSET and r.physical_offset != offset:
        return REC_OFFSET
    if checks & CHECK_TORN and lost_sector(p, r, offset):
        return REC_TORN
    return REC_OK


cdef int next_property(const uint8_t* p, int32_t n, int32_t* at, Span* name, Span* value) noexcept nogil:
    """Step to the next pair the parser of spec 2.7 accepts; 0 when there is none."""
    cdef int32_t start, end
    cdef const uint8_t* found
    while at[0] < n:
        start = at[0]
        found = <const uint8_t*> memchr(p + start, 2, n - start)
        end = <int32_t> (found - p) if found != NULL else n
        at[0] = end + 1
        found = <const uint8_t*> memchr(p + start, 1, end - start)
        if found == NULL:
            continue
        name.at = p + start
        name.length = <int32_t> (found - p) - start
        value.at = found + 1
        value.length = end - start - name.length - 1
        if name.length > 0 and value.length > 0:
            return 1
    return 0


cdef void scan_properties(const uint8_t* p, int32_t n, Properties* out) noexcept nogil:
    """Find the values that dispatch needs. Later duplicates win, as in the parser."""
    cdef int32_t at = 0
    cdef Span name, value
    out.keys.length = out.tags.length = out.unique_key.length = out.delay.length = 0
    out.inner_num.length = out.inner_base.length = out.multi_dispatch.length = out.multi_offset.length = 0
    while next_property(p, n, &at, &name, &value):
        if name.length == 4:
            if memcmp(name.at, b"KEYS", 4) == 0:
                out.keys = value
            elif memcmp(name.at, b"TAGS", 4) == 0:
                out.tags = value
        elif name.length == 8:
            if memcmp(name.at, b"UNIQ_KEY", 8) == 0:
                out.unique_key = value
        elif name.length == 5:
            if memcmp(name.at, b"DELAY", 5) == 0:
                out.delay = value
        elif name.length == 9:
            if memcmp(name.at, b"INNER_NUM", 9) == 0:
                out.inner_num = value
        elif name.length == 10:
            if memcmp(name.at, b"INNER_BASE", 10) == 0:
                out.inner_base = value
        elif name.length == 20:
            if memcmp(name.at, b"INNER_MULTI_DISPATCH", 20) == 0:
                out.multi_dispatch = value
        elif name.length == 24:
            if memcmp(name.at, b"INNER_MULTI_QUEUE_OFFSET", 24) == 0:
                out.multi_offset = value


cdef int64_t parse_number(Span text, int64_t missing) noexcept nogil:
    """Java's parseInt/parseLong for what fits; anything else is `missing`."""
    cdef int64_t value = 0
    cdef int32_t i = 0
    cdef bint negative = False
    if text.length > 0 and (text.at[0] == 45 or text.at[0] == 43):
        negative = text.at[0] == 45
        i = 1
    if text.length == i or text.length > 19:
        return missing
    while i < text.length:
        if text.at[i] < 48 or text.at[i] > 57:
            return missing
        value = value * 10 + (text.at[i] - 48)
        i += 1
    return -value if negative else value


cdef int32_t next_code_point(const uint8_t* p, int32_t n, int32_t* at) noexcept nogil:
    """Decode one character; each maximal malformed piece counts as U+FFFD, as Python and Java replace it."""
    cdef int32_t i = at[0], b = p[i], low = 0x80, high = 0xBF, more, value
    if b < 0x80:
        at[0] = i + 1
        return b
    if b < 0xC2 or b > 0xF4:
        at[0] = i + 1
        return 0xFFFD
    if b < 0xE0:
        more = 1
        value = b & 0x1F
    elif b < 0xF0:
        more = 2
        value = b & 0x0F
        if b == 0xE0:
            low = 0xA0
        elif b == 0xED:
            high = 0x9F
    else:
        more = 3
        value = b & 0x07
        if b == 0xF0:
            low = 0x90
        elif b == 0xF4:
            high = 0x8F
    i += 1
    while more:
        if i >= n or p[i] < low or p[i] > high:
            at[0] = i
            return 0xFFFD
        value = (value << 6) | (p[i] & 0x3F)
        low = 0x80
        high = 0xBF
        i += 1
        more -= 1
    at[0] = i
    return value


cdef uint32_t hash_text(uint32_t h, const uint8_t* p, int32_t n) noexcept nogil:
    """Continue Java's String.hashCode (spec 19) over UTF-8 text.

    Four characters a step: the plain recurrence waits for a multiplication at each of them.
    """
    cdef int32_t i = 0, c
    cdef uint32_t word
    while i + 4 <= n:
        memcpy(&word, p + i, 4)
        if word & 0x80808080u:
            break
        h = h * 923521u + p[i] * 29791u + p[i + 1] * 961u + p[i + 2] * 31u + p[i + 3]
        i += 4
    while i < n:
        c = next_code_point(p, n, &i)
        if c > 0xFFFF:
            c -= 0x10000
            h = h * 31u + 0xD800u + (c >> 10)
            c = 0xDC00 + (c & 0x3FF)
        h = h * 31u + <uint32_t> c
    return h


def string_hash(const uint8_t[::1] text not None):
    """Java's hash of UTF-8 text, as a signed 32-bit number."""
    return <int32_t> hash_text(0, &text[0], <int32_t> text.shape[0]) if text.shape[0] else 0


def crc32(const uint8_t[::1] data not None):
    """zlib's CRC-32 (not masked)."""
    cdef Py_ssize_t n = data.shape[0]
    cdef uint32_t value
    if n == 0:
        return 0
    with nogil:
        value = penstock_crc32(&data[0], n)
    return value


cdef class WalkResult:
    """How far a run of records is whole, and why the walk ended there."""

    cdef readonly int64_t records
    cdef readonly int64_t end_position
    cdef readonly int64_t last_position
    cdef readonly int64_t last_store_timestamp
    cdef readonly int64_t length
    cdef readonly str stop


def walk(
    const uint8_t[::1] buffer not None,
    int64_t start,
    int64_t end,
    int64_t base_offset,
    *,
    bint check_crc=True,
    bint check_offset=True,
    bint check_property_crc=False,
    bint check_torn=False,
):
    """Step over whole records in buffer[start:end]; the byte at position 0 has physical offset `base_offset`.

    Ends at the first record that fails, at a blank, or at `end`; `length` is the failing record's length field.
    """
    cdef WalkResult result = WalkResult.__new__(WalkResult)
    cdef Record r
    cdef int64_t at = start, count = 0, last = -1, when = 0
    cdef int code = REC_OK
    cdef int checks = (
        (CHECK_CRC if check_crc else 0) | (CHECK_OFFSET if check_offset else 0)
        | (CHECK_PROPERTY_CRC if check_property_crc else 0) | (CHECK_TORN if check_torn else 0)
    )
    if start < 0 or end > buffer.shape[0]:
        raise ValueError("walk outside of the buffer")
    r.size = 0
    with nogil:
        while at < end:
            code = parse_record(&buffer[0] + at, end - at, &r)
            if code == REC_OK:
                code = check_record(&buffer[0] + at, &r, base_offset + at, checks)
            if code != REC_OK:
                break
            last = at
            when = r.store_timestamp
            count += 1
            at += r.size
    result.records = count
    result.end_position = at
    result.last_position = last
    result.last_store_timestamp = when
    result.length = r.size if code != REC_OK and end - at >= 8 else 0
    result.stop = STOPS[code]
    return result
