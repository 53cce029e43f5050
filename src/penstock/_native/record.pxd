"""One commit log record (spec 2): where its fields lie, whether it is whole, what it says of itself."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "crc.h":
    void penstock_crc_setup() noexcept nogil
    uint32_t penstock_crc32(const uint8_t* p, size_t n) noexcept nogil

cdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    MAGIC_BLANK = -875286124
    BLANK_LENGTH = 8
    CRC_RESERVED = 20
    # Nothing longer is taken for a record, whatever its length field says: it bounds what a reader allocates.
    RECORD_LIMIT = 268435456
    PROPERTIES_LIMIT = 32767

cdef enum:  # why a record was not accepted; the names are format.walk's
    REC_OK = 0
    REC_BLANK = 1
    REC_ZERO = 2
    REC_MAGIC = 3
    REC_LENGTH = 4
    REC_CRC = 5
    REC_OFFSET = 6
    REC_SHORT = 7
    REC_TORN = 8

cdef enum:
    SYS_COMPRESSED = 0x1
    SYS_TRANSACTION = 0xC
    SYS_PREPARED = 0x4
    SYS_COMMIT = 0x8
    SYS_ROLLBACK = 0xC
    SYS_BORN_V6 = 0x10
    SYS_STORE_V6 = 0x20
    SYS_NEED_UNWRAP = 0x40
    SYS_INNER_BATCH = 0x80

cdef enum:
    CHECK_CRC = 1
    CHECK_OFFSET = 2
    CHECK_PROPERTY_CRC = 4
    CHECK_TORN = 8

cdef struct Record:
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_offset
    int32_t size
    int32_t magic
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t store_host_at
    int32_t body_at
    int32_t body_length
    int32_t topic_at
    int32_t topic_length
    int32_t properties_at
    int32_t properties_length

cdef struct Span:
    const uint8_t* at
    int32_t length

cdef struct Properties:
    Span keys
    Span tags
    Span unique_key
    Span delay
    Span inner_num
    Span inner_base
    Span multi_dispatch
    Span multi_offset

cdef int parse_record(const uint8_t* p, int64_t available, Record* r) noexcept nogil
cdef int check_record(const uint8_t* p, const Record* r, int64_t offset, int checks) noexcept nogil
cdef void scan_properties(const uint8_t* p, int32_t n, Properties* out) noexcept nogil
cdef int next_property(const uint8_t* p, int32_t n, int32_t* at, Span* name, Span* value) noexcept nogil
cdef int32_t next_code_point(const uint8_t* p, int32_t n, int32_t* at) noexcept nogil
cdef uint32_t hash_text(uint32_t h, const uint8_t* p, int32_t n) noexcept nogil
cdef int64_t parse_number(Span text, int64_t missing) noexcept nogil
cdef void put_crc_property(uint8_t* record, int32_t size) noexcept nogil
