from libc.stdint cimport int32_t, int64_t, uint8_t

from penstock._native.record cimport Span

cdef struct Value:
    int kind
    int64_t whole
    double real
    Span text

cdef struct Node:
    int kind
    int sign
    bint negative
    int32_t first             # of its operands, and how many
    int32_t count
    int32_t first_text        # of its texts, or the number of the property
    int32_t text_count
    Value constant

cdef class Program:
    cdef Node* nodes
    cdef int32_t* operands
    cdef Span* texts
    cdef Span* names
    cdef Span* found
    cdef int32_t root
    cdef int32_t name_count
    cdef object read_whole
    cdef object read_double
    cdef list kept
    cdef int64_t work             # steps since it was last set to 0
    cdef int check(self, const Node* node) except -1
    cdef Span keep(self, bytes text)
    cdef int set_constant(self, Value* value, object constant) except -1
    cdef int wants(self, const uint8_t* properties, int32_t length) except -1
    cdef int look_up(self, const uint8_t* properties, int32_t length) except -1
    cdef int evaluate(self, int32_t number, Value* out) except -1
    cdef int both(self, const Node* node, Value* left, Value* right) except -1
    cdef int equal(self, const Node* node, Value* out) except -1
    cdef int order(self, const Node* node, Value* out) except -1
    cdef int search(self, const Node* node, Value* out) except -1
    cdef bint listed(self, const Node* node, const Span* text) noexcept
    cdef int compare(self, Value* left, Value* right, int* answer) except -1
    cdef int convert(self, Value* text, int kind) except -1
    cdef int ask(self, Value* text, int kind) except -1
