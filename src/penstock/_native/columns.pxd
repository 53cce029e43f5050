"""Rows that become Arrow columns: what a builder of them holds."""

from cython cimport final
from libc.stdint cimport int64_t, uint8_t

from penstock._native.arrow cimport Field, Shared
from penstock._native.hosttext cimport HOST_LENGTH
from penstock._native.pairs cimport Pairs
from penstock._native.record cimport Record, Span
from penstock._native.text cimport Text

cdef enum:  # columns, in the order of the schema
    TOPIC
    QUEUE_ID
    QUEUE_OFFSET
    PHYSICAL_OFFSET
    MESSAGE_ID
    KEYS
    TAGS
    BODY
    PROPERTIES
    BORN_TIMESTAMP
    STORE_TIMESTAMP
    BORN_HOST
    STORE_HOST
    SYS_FLAG
    FLAG
    RECONSUME_TIMES
    PREPARED_OFFSET
    BODY_CRC
    SIZE
    UNIQUE_KEY
    COLUMN_COUNT

cdef struct Column:
    int field
    int64_t nulls
    uint8_t* numbers
    uint8_t* validity
    Text text             # of a map: the offsets count pairs
    Text names
    Text values
    int64_t pairs
    int64_t pair_capacity
    uint8_t host[20]      # the last one: most rows come from few places
    int host_size
    int host_length
    char host_text[HOST_LENGTH]

@final
cdef class Batch:
    cdef Field root
    cdef Shared* shared
    cdef readonly int64_t num_rows
    cdef readonly int64_t nbytes
    cdef readonly tuple column_names

@final
cdef class Builder:
    cdef Column columns[COLUMN_COUNT]
    cdef int count
    cdef int64_t rows
    cdef int64_t row_capacity
    cdef bint want_pairs
    cdef bint spark            # names, times and nullability as Spark has them
    cdef Pairs pairs
    cdef Text cleaned_topic
    cdef Span topic            # of all rows, whatever their records say; at NULL: as they say
    cdef bint wide             # whether WIDE bytes behind the record may be read
    cdef tuple names
    cdef int reserve_rows(self, int64_t rows) noexcept nogil
    cdef int add_map(self, Column* c) noexcept nogil
    cdef int add_optional(self, Column* c, const Span* value) noexcept nogil
    cdef int foresee(self, double factor) noexcept nogil
    cdef int add(self, const uint8_t* p, const Record* r, int64_t queue_offset, const uint8_t* limit) noexcept nogil
    cdef Batch finish(self)
    cdef int64_t finish_map(self, Column* c, Field* f, Shared* shared) except -1

cdef int raise_for(int code) except -1
