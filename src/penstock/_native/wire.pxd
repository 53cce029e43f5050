cdef class Command:
    cdef public int code
    cdef public int flag
    cdef public int opaque
    cdef public int version
    cdef public bint binary
    cdef public object language
    cdef public object remark
    cdef public dict fields
    cdef public object body
