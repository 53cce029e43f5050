"""Columns that somebody else made: the Arrow C data interface, read in place."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from penstock._native.arrow cimport ArrowArray, ArrowSchema
from penstock._native.record cimport Span

cdef enum:  # what a column holds; numbers by their width
    NOTHING = 0
    TEXT = 1       # text or bytes, 32-bit offsets
    LARGE_TEXT = 2
    MAP = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7

cdef struct Column:
    int kind
    const uint8_t* validity  # NULL: every value is there
    const void* offsets
    const uint8_t* data
    int64_t offset           # of the first value


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    cdef int64_t at = column.offset + row
    return column.kind == NOTHING or (column.validity != NULL and not (column.validity[at >> 3] >> (at & 7)) & 1)


cdef inline Span text_at(const Column* column, int64_t row) noexcept nogil:
    """The value of a text column that is not null."""
    cdef Span span
    cdef int64_t at = column.offset + row, begin
    if column.kind == TEXT:
        begin = (<const int32_t*> column.offsets)[at]
        span.length = (<const int32_t*> column.offsets)[at + 1] - <int32_t> begin
    else:
        begin = (<const int64_t*> column.offsets)[at]
        span.length = <int32_t> min((<const int64_t*> column.offsets)[at + 1] - begin, 0x7FFFFFFF)
    span.at = column.data + begin
    return span


cdef inline int64_t number_at(const Column* column, int64_t row) noexcept nogil:
    cdef int64_t at = column.offset + row
    if column.kind == INT32:
        return (<const int32_t*> column.data)[at]
    if column.kind == INT64:
        return (<const int64_t*> column.data)[at]
    if column.kind == INT16:
        return (<const int16_t*> column.data)[at]
    return (<const int8_t*> column.data)[at]


cdef inline int kind_of(const char* format) noexcept nogil:
    if format[0] == c"u" or format[0] == c"z":
        return TEXT if format[1] == 0 else NOTHING
    if format[0] == c"U" or format[0] == c"Z":
        return LARGE_TEXT if format[1] == 0 else NOTHING
    if format[0] == c"+":
        return MAP if format[1] == c"m" else NOTHING
    if format[0] == c"t":
        return INT64 if format[1] == c"s" and format[2] == c"u" else NOTHING
    if format[1] != 0:
        return NOTHING
    if format[0] == c"c":
        return INT8
    if format[0] == c"s":
        return INT16
    if format[0] == c"i":
        return INT32
    return INT64 if format[0] == c"l" else NOTHING


cdef inline void take_column(Column* column, const ArrowSchema* schema, const ArrowArray* array) noexcept nogil:
    column.kind = kind_of(schema.format)
    column.offset = array.offset
    column.validity = <const uint8_t*> array.buffers[0] if array.null_count != 0 and array.n_buffers else NULL
    column.offsets = column.data = NULL
    if column.kind == TEXT or column.kind == LARGE_TEXT:
        column.offsets = array.buffers[1]
        column.data = <const uint8_t*> array.buffers[2]
    elif column.kind == MAP:
        column.offsets = array.buffers[1]
    elif column.kind != NOTHING:
        column.data = <const uint8_t*> array.buffers[1]
