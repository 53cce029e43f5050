"""Records copied to another place of a log. Plain twin: format.moving."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from penstock._native.record cimport (
    CHECK_PROPERTY_CRC, CRC_RESERVED, REC_OK, Record, check_record, parse_record, put_crc_property,
)

cdef enum:
    PHYSICAL_OFFSET_AT = 28


cdef inline void put_long(uint8_t* p, int64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <uint8_t> (value >> (56 - 8 * i))


def move_records(
    const uint8_t[::1] records not None,
    int64_t base_offset,
    const int64_t[::1] kept not None,
    uint8_t[::1] target not None,
    int64_t target_offset,
):
    """Copy the records that begin at the physical offsets `kept` into `target`; the bytes written.

    `records` are whole records, the first at physical offset `base_offset`; `kept` is ascending and names only places
    where one of them begins. `target` begins at physical offset `target_offset` of the new log. A copy has the bytes
    of its record, but for the physical offset, and for a whole-record checksum if that was right: it is right again.
    ValueError when an offset names no record or `target` is too short.
    """
    cdef Record r
    cdef int64_t at = 0, end = records.shape[0], count = kept.shape[0], done = 0, written = 0
    cdef int64_t room = target.shape[0]
    cdef const uint8_t* source
    cdef uint8_t* copy
    cdef bint full = False, sealed
    if count == 0:
        return 0
    with nogil:
        while at < end and done < count:
            if parse_record(&records[0] + at, end - at, &r) != REC_OK:
                break
            if kept[done] == base_offset + at:
                if written + r.size > room:
                    full = True
                    break
                source = &records[0] + at
                copy = &target[0] + written
                sealed = (
                    r.properties_length >= CRC_RESERVED
                    and check_record(source, &r, base_offset + at, CHECK_PROPERTY_CRC) == REC_OK
                )
                memcpy(copy, source, r.size)
                put_long(copy + PHYSICAL_OFFSET_AT, target_offset + written)
                if sealed:
                    put_crc_property(copy, r.size)
                written += r.size
                done += 1
            at += r.size
    if full:
        raise ValueError(f"the records do not fit in {room} bytes")
    if done < count:
        raise ValueError(f"no record begins at {kept[done]}")
    return written
