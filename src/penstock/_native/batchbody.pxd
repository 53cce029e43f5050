from libc.stdint cimport int64_t, uint8_t

from penstock._native.encode cimport Item

cdef bint next_item(const uint8_t* p, int64_t* at, int64_t end, Item* item) except -1
