"""The properties of one record as pairs, each separator met once. The rule is record.next_property's."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcmp, memcpy, memset

from penstock._native.record cimport Span
from penstock._native.text cimport NO_MEMORY, Text, clean_text, free_text, resize

cdef enum:
    FEW_PAIRS = 16  # so many are compared one by one; more are sorted

cdef struct Pair:
    Span name
    Span value
    int32_t number

cdef struct Pairs:
    # Room that is used again for each record. Spans point into the record, or into `cleaned`.
    Pair* list
    Pair* by_name
    int32_t count
    int32_t capacity
    int32_t sorted_capacity
    Span keys             # of equal names the last counts; length 0: there is none
    Span tags
    Span unique_key
    Text cleaned

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    static inline uint64_t penstock_word(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    #else
    static inline uint64_t penstock_word(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
    #endif
    static inline int penstock_lowest(uint64_t mask) { return __builtin_ctzll(mask) >> 3; }
    """
    uint64_t load_word "penstock_word"(const uint8_t* p) noexcept nogil
    int lowest_byte "penstock_lowest"(uint64_t mask) noexcept nogil


cdef inline uint64_t equal_bytes(uint64_t word, uint64_t pattern) noexcept nogil:
    """The top bit of each byte of `word` that equals its byte of `pattern`."""
    cdef uint64_t x = word ^ pattern
    return ~(((x & 0x7F7F7F7F7F7F7F7FULL) + 0x7F7F7F7F7F7F7F7FULL) | x | 0x7F7F7F7F7F7F7F7FULL)


cdef inline int compare_pairs(const void* left, const void* right) noexcept nogil:
    """By name, then by place."""
    cdef const Pair* a = <const Pair*> left
    cdef const Pair* b = <const Pair*> right
    cdef int order = memcmp(a.name.at, b.name.at, min(a.name.length, b.name.length))
    if order == 0:
        order = a.name.length - b.name.length
    return order if order != 0 else a.number - b.number


cdef inline bint is_named(const Pair* pair, const char* name, int32_t n) noexcept nogil:
    return pair.name.length == n and pair.name.at[0] == <uint8_t> name[0] and memcmp(pair.name.at, name, n) == 0


cdef inline int add_pair(Pairs* pairs, const uint8_t* p, int32_t start, int32_t divide, int32_t end) noexcept nogil:
    """The segment [start, end), if it has a name and a value around `divide`."""
    cdef Pair* pair
    if divide <= start or divide + 1 >= end:
        return 0
    if pairs.count == pairs.capacity:
        if resize(<void**> &pairs.list, max(FEW_PAIRS, pairs.capacity * 2) * sizeof(Pair)) != 0:
            return NO_MEMORY
        pairs.capacity = max(FEW_PAIRS, pairs.capacity * 2)
    pair = &pairs.list[pairs.count]
    pair.name.at = p + start
    pair.name.length = divide - start
    pair.value.at = p + divide + 1
    pair.value.length = end - divide - 1
    pair.number = pairs.count
    pairs.count += 1
    if pair.name.length == 4:  # of equal names the last counts
        if memcmp(pair.name.at, b"KEYS", 4) == 0:
            pairs.keys = pair.value
        elif memcmp(pair.name.at, b"TAGS", 4) == 0:
            pairs.tags = pair.value
    elif pair.name.length == 8 and memcmp(pair.name.at, b"UNIQ_KEY", 8) == 0:
        pairs.unique_key = pair.value
    return 0


cdef inline int read_pairs(Pairs* pairs, const uint8_t* p, int32_t n) noexcept nogil:
    """The properties as the parser sees them, in order, equal names included.

    Eight bytes a step: the rule is `next_property`'s, but here every separator is met once.
    """
    cdef Span text
    cdef uint64_t word, ones, found
    cdef int32_t at = 0, here, start = 0, divide = -1
    cdef uint8_t tail[8]
    cdef int code = clean_text(p, n, &pairs.cleaned, &text)
    if code != 0:
        return code
    pairs.count = 0
    pairs.keys.length = pairs.tags.length = pairs.unique_key.length = 0
    while at < text.length:
        if at + 8 <= text.length:
            word = load_word(text.at + at)
        else:
            memset(tail, 0, 8)
            memcpy(tail, text.at + at, text.length - at)
            word = load_word(tail)
        ones = equal_bytes(word, 0x0101010101010101ULL)
        found = ones | equal_bytes(word, 0x0202020202020202ULL)
        while found:
            here = at + lowest_byte(found)
            if ones & found & (~found + 1):
                if divide < 0:
                    divide = here
            else:
                if add_pair(pairs, text.at, start, divide, here) != 0:
                    return NO_MEMORY
                start = here + 1
                divide = -1
            found &= found - 1
        at += 8
    return add_pair(pairs, text.at, start, divide, text.length)


cdef inline int unite_pairs(Pairs* pairs) noexcept nogil:
    """Equal names become one: the first keeps its place and takes the last value. The others get no name."""
    cdef int32_t i, k, n = pairs.count
    cdef Pair* s
    if n <= FEW_PAIRS:
        for i in range(1, n):
            for k in range(i):
                if is_named(&pairs.list[k], <const char*> pairs.list[i].name.at, pairs.list[i].name.length):
                    pairs.list[k].value = pairs.list[i].value
                    pairs.list[i].name.length = 0
                    break
        return 0
    if pairs.sorted_capacity < n:
        if resize(<void**> &pairs.by_name, pairs.capacity * sizeof(Pair)) != 0:
            return NO_MEMORY
        pairs.sorted_capacity = pairs.capacity
    s = pairs.by_name
    memcpy(s, pairs.list, n * sizeof(Pair))
    qsort(s, n, sizeof(Pair), compare_pairs)
    i = 0
    while i < n:
        k = i + 1
        while k < n and is_named(&s[k], <const char*> s[i].name.at, s[i].name.length):
            pairs.list[s[k].number].name.length = 0
            k += 1
        pairs.list[s[i].number].value = s[k - 1].value
        i = k
    return 0


cdef inline void free_pairs(Pairs* pairs) noexcept nogil:
    free(pairs.list)
    free(pairs.by_name)
    free_text(&pairs.cleaned)
