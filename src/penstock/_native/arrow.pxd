"""The Arrow C data interface: finished columns, handed to whoever asks without copying and without pyarrow."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    NULLABLE = 2          # ARROW_FLAG_NULLABLE
    MAX_BUFFERS = 3       # of one array: validity, offsets, data

cdef struct ArrowSchema:  # the layout is fixed by the interface
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept nogil
    void* private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept nogil
    void* private_data

cdef struct Shared:
    # Buffers of one batch. Every exported array counts as a user; the last one frees them, on whatever thread.
    int64_t users
    int32_t count
    int32_t capacity
    void** buffers

cdef struct Field:
    # A finished array and its type. Names and formats are literals; buffers belong to a Shared.
    const char* name
    const char* format
    int64_t flags
    int64_t length
    int64_t nulls
    int32_t buffer_count
    int32_t child_count
    const void* buffers[MAX_BUFFERS]
    Field* children

cdef Shared* new_shared(int32_t capacity) noexcept nogil
cdef void own_buffer(Shared* shared, void* buffer) noexcept nogil
cdef void drop_shared(Shared* shared) noexcept nogil
cdef void free_field(Field* field) noexcept nogil
cdef int set_children(Field* field, int32_t count) noexcept nogil
cdef object schema_capsule(const Field* field)
cdef object array_capsule(const Field* field, Shared* shared)
