"""Export of finished columns through the Arrow C data interface and its capsules.

An exported array may be moved, split into its children and released on any thread, with or without an interpreter:
so what it holds is counted in C, and no release touches a Python object.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc

cdef extern from *:
    """
    #include <stdint.h>
    static inline int64_t penstock_count(int64_t *counter, int64_t step) { return __atomic_add_fetch(counter, step, __ATOMIC_ACQ_REL); }
    """
    int64_t step_counter "penstock_count"(int64_t* counter, int64_t step) noexcept nogil

cdef struct ArrayPrivate:
    Shared* shared
    const void* buffers[MAX_BUFFERS]
    ArrowArray* children
    ArrowArray** pointers

cdef struct SchemaPrivate:
    ArrowSchema* children
    ArrowSchema** pointers


# -- what a batch owns -------------------------------------------------------------------------------------

cdef Shared* new_shared(int32_t capacity) noexcept nogil:
    """Room for that many buffers, with one user: the caller."""
    cdef Shared* shared = <Shared*> calloc(1, sizeof(Shared))
    if shared == NULL:
        return NULL
    shared.buffers = <void**> calloc(capacity if capacity else 1, sizeof(void*))
    if shared.buffers == NULL:
        free(shared)
        return NULL
    shared.users = 1
    shared.capacity = capacity
    return shared


cdef void own_buffer(Shared* shared, void* buffer) noexcept nogil:
    """Take over a buffer from malloc. The room was asked for in `new_shared`."""
    shared.buffers[shared.count] = buffer
    shared.count += 1


cdef void drop_shared(Shared* shared) noexcept nogil:
    cdef int32_t i
    if shared == NULL or step_counter(&shared.users, -1) != 0:
        return
    for i in range(shared.count):
        free(shared.buffers[i])
    free(shared.buffers)
    free(shared)


cdef int set_children(Field* field, int32_t count) noexcept nogil:
    field.children = <Field*> calloc(count if count else 1, sizeof(Field))
    if field.children == NULL:
        return -1
    field.child_count = count
    return 0


cdef void free_field(Field* field) noexcept nogil:
    """Free the tree below a field; its buffers belong to the Shared."""
    cdef int32_t i
    for i in range(field.child_count):
        free_field(&field.children[i])
    free(field.children)
    field.children = NULL
    field.child_count = 0


# -- schema ------------------------------------------------------------------------------------------------

cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef SchemaPrivate* private = <SchemaPrivate*> schema.private_data
    cdef int64_t i
    for i in range(schema.n_children):
        if private.children[i].release != NULL:  # NULL: moved away by the consumer
            private.children[i].release(&private.children[i])
    free(private.children)
    free(private.pointers)
    free(private)
    schema.release = NULL


cdef int export_schema(const Field* field, ArrowSchema* out) noexcept nogil:
    cdef SchemaPrivate* private = <SchemaPrivate*> calloc(1, sizeof(SchemaPrivate))
    cdef int32_t i, n = field.child_count
    out.release = NULL
    if private == NULL:
        return -1
    private.children = <ArrowSchema*> calloc(n if n else 1, sizeof(ArrowSchema))
    private.pointers = <ArrowSchema**> calloc(n if n else 1, sizeof(ArrowSchema*))
    out.format = field.format
    out.name = field.name
    out.metadata = NULL
    out.flags = field.flags
    out.n_children = 0
    out.children = private.pointers
    out.dictionary = NULL
    out.private_data = private
    out.release = release_schema
    if private.children == NULL or private.pointers == NULL:
        release_schema(out)
        return -1
    for i in range(n):
        private.pointers[i] = &private.children[i]
        if export_schema(&field.children[i], &private.children[i]) != 0:
            release_schema(out)
            return -1
        out.n_children = i + 1
    return 0


cdef void discard_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef object schema_capsule(const Field* field):
    """A capsule `arrow_schema` of the type of a field."""
    cdef ArrowSchema* schema = <ArrowSchema*> malloc(sizeof(ArrowSchema))
    if schema == NULL or export_schema(field, schema) != 0:
        free(schema)
        raise MemoryError()
    return PyCapsule_New(schema, "arrow_schema", discard_schema)


# -- array -------------------------------------------------------------------------------------------------

cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef ArrayPrivate* private = <ArrayPrivate*> array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if private.children[i].release != NULL:
            private.children[i].release(&private.children[i])
    free(private.children)
    free(private.pointers)
    drop_shared(private.shared)
    free(private)
    array.release = NULL


cdef int export_array(const Field* field, Shared* shared, ArrowArray* out) noexcept nogil:
    cdef ArrayPrivate* private = <ArrayPrivate*> calloc(1, sizeof(ArrayPrivate))
    cdef int32_t i, n = field.child_count
    out.release = NULL
    if private == NULL:
        return -1
    private.children = <ArrowArray*> calloc(n if n else 1, sizeof(ArrowArray))
    private.pointers = <ArrowArray**> calloc(n if n else 1, sizeof(ArrowArray*))
    private.shared = shared
    step_counter(&shared.users, 1)
    for i in range(MAX_BUFFERS):
        private.buffers[i] = field.buffers[i]
    out.length = field.length
    out.null_count = field.nulls
    out.offset = 0
    out.n_buffers = field.buffer_count
    out.n_children = 0
    out.buffers = private.buffers
    out.children = private.pointers
    out.dictionary = NULL
    out.private_data = private
    out.release = release_array
    if private.children == NULL or private.pointers == NULL:
        release_array(out)
        return -1
    for i in range(n):
        private.pointers[i] = &private.children[i]
        if export_array(&field.children[i], shared, &private.children[i]) != 0:
            release_array(out)
            return -1
        out.n_children = i + 1
    return 0


cdef void discard_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef object array_capsule(const Field* field, Shared* shared):
    """A capsule `arrow_array` that shares the buffers."""
    cdef ArrowArray* array = <ArrowArray*> malloc(sizeof(ArrowArray))
    if array == NULL or export_array(field, shared, array) != 0:
        free(array)
        raise MemoryError()
    return PyCapsule_New(array, "arrow_array", discard_array)
