"""Queues by topic and number: a small number for each, found without the interpreter."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from penstock._native.record cimport Span, hash_text

cdef struct Topic:
    uint8_t* name
    int32_t length
    uint32_t hash
    int32_t* slots       # by queue id; -1 where there is none yet
    int32_t slot_count

cdef struct TopicSlots:
    Topic* topics
    int32_t count
    int32_t capacity
    int32_t* table       # open addressing, -1 where free; four places for each topic
    int32_t table_size
    int32_t last         # the topic of the last search: rows of one topic come together


cdef inline int32_t find_topic(TopicSlots* all, Span name) noexcept nogil:
    cdef uint32_t h
    cdef int32_t at
    cdef Topic* t
    if all.last >= 0:
        t = &all.topics[all.last]
        if t.length == name.length and memcmp(t.name, name.at, name.length) == 0:
            return all.last
    if all.table_size == 0:
        return -1
    h = hash_text(0, name.at, name.length)
    at = <int32_t> (h & <uint32_t> (all.table_size - 1))
    while all.table[at] >= 0:
        t = &all.topics[all.table[at]]
        if t.hash == h and t.length == name.length and memcmp(t.name, name.at, name.length) == 0:
            all.last = all.table[at]
            return all.last
        at = (at + 1) & (all.table_size - 1)
    return -1


cdef inline int32_t find_slot(TopicSlots* all, Span name, int64_t queue_id) noexcept nogil:
    """The slot of a queue, or -1."""
    cdef int32_t place = find_topic(all, name)
    if place < 0 or queue_id >= all.topics[place].slot_count:
        return -1
    return all.topics[place].slots[queue_id]


cdef inline void enter_topic(TopicSlots* all, int32_t place) noexcept nogil:
    cdef int32_t at = <int32_t> (all.topics[place].hash & <uint32_t> (all.table_size - 1))
    while all.table[at] >= 0:
        at = (at + 1) & (all.table_size - 1)
    all.table[at] = place


cdef inline int grow_topics(TopicSlots* all) noexcept nogil:
    cdef int32_t capacity = max(16, all.capacity * 2), i
    cdef void* grown = realloc(all.topics, capacity * sizeof(Topic))
    if grown == NULL:
        return -1
    all.topics = <Topic*> grown
    grown = realloc(all.table, capacity * 4 * sizeof(int32_t))
    if grown == NULL:
        return -1
    all.table = <int32_t*> grown
    all.capacity = capacity
    all.table_size = capacity * 4
    for i in range(all.table_size):
        all.table[i] = -1
    for i in range(all.count):
        enter_topic(all, i)
    return 0


cdef inline int32_t* make_slot(TopicSlots* all, Span name, int32_t queue_id) noexcept nogil:
    """The place of a queue's slot, which is -1 if it is new; NULL when there is no memory."""
    cdef int32_t place = find_topic(all, name), i
    cdef Topic* t
    cdef void* grown
    if place < 0:
        if all.count == all.capacity and grow_topics(all) != 0:
            return NULL
        t = &all.topics[all.count]
        t.name = <uint8_t*> malloc(name.length + 1)
        if t.name == NULL:
            return NULL
        memcpy(t.name, name.at, name.length)
        t.length = name.length
        t.hash = hash_text(0, name.at, name.length)
        t.slots = NULL
        t.slot_count = 0
        place = all.count
        all.count += 1
        enter_topic(all, place)
    t = &all.topics[place]
    if queue_id >= t.slot_count:
        grown = realloc(t.slots, (queue_id + 1) * sizeof(int32_t))
        if grown == NULL:
            return NULL
        t.slots = <int32_t*> grown
        for i in range(t.slot_count, queue_id + 1):
            t.slots[i] = -1
        t.slot_count = queue_id + 1
    return &t.slots[queue_id]


cdef inline void free_topics(TopicSlots* all) noexcept nogil:
    cdef int32_t i
    for i in range(all.count):
        free(all.topics[i].name)
        free(all.topics[i].slots)
    free(all.topics)
    free(all.table)
