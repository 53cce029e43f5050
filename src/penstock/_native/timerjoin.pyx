"""Timer messages on their way into the wheel: their units, their slots, and the chains back. Plain twin: format.timerjoin."""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import array as arrays

from penstock._native.endian cimport get32, get64, put32, put64
from penstock._native.pairs cimport Pair, Pairs, free_pairs, is_named, read_pairs
from penstock._native.record cimport REC_OK, Record, Span, hash_text, parse_record
from penstock._native.text cimport resize
from penstock._native.touching cimport touch_all

cdef enum:
    UNIT = 52
    SLOT = 32
    PAGE = 4096
    NO_TIME = -1
    MAGIC_DEFAULT = 1
    MAGIC_ROLL = 2
    MAGIC_DELETE = 4
    MOST_DIGITS = 18
    CHAIN_GOES_ON = 0
    CHAIN_BROKEN = 1
    CHAIN_FORWARDS = 2

GOES_ON, BROKEN, FORWARDS = range(3)

cdef struct Timed:  # what a message in the timer topic says
    Record record
    int64_t out       # NO_TIME: no plain number
    Span topic
    bint placed       # the queue it belongs to is named too
    bint deletes

cdef struct Slot:
    int64_t tick
    int64_t first
    int64_t last
    int32_t count
    int32_t magic


cdef inline int64_t plain_number(Span text) noexcept nogil:
    """Digits and nothing else; NO_TIME for whatever else there is."""
    cdef int64_t value = 0
    cdef int32_t i
    if text.length < 1 or text.length > MOST_DIGITS:
        return NO_TIME
    for i in range(text.length):
        if text.at[i] < 48 or text.at[i] > 57:
            return NO_TIME
        value = value * 10 + text.at[i] - 48
    return value


cdef int read_timed(const uint8_t* p, int64_t n, Pairs* pairs, Timed* t) noexcept nogil:
    """0, or not: the bytes are no record, or there is no memory."""
    cdef int32_t i
    cdef Pair* pair
    cdef int code = parse_record(p, n, &t.record)
    if code != REC_OK:
        return code
    code = read_pairs(pairs, p + t.record.properties_at, t.record.properties_length)
    if code != 0:
        return code
    t.out = NO_TIME
    t.topic.length = 0
    t.placed = t.deletes = False
    for i in range(pairs.count):
        pair = &pairs.list[i]
        if is_named(pair, b"TIMER_OUT_MS", 12):
            t.out = plain_number(pair.value)
        elif is_named(pair, b"REAL_TOPIC", 10):
            t.topic = pair.value
        elif is_named(pair, b"REAL_QID", 8):
            t.placed = plain_number(pair.value) != NO_TIME
        elif is_named(pair, b"TIMER_DEL_UNIQKEY", 17):
            t.deletes = True
    return 0


cdef class Reading:
    """The records of a run, one after the other."""

    cdef list records
    cdef Pairs pairs
    cdef Timed timed

    def __cinit__(self, list records not None):
        self.records = records
        memset(&self.pairs, 0, sizeof(Pairs))

    def __dealloc__(self):
        free_pairs(&self.pairs)

    cdef bint read(self, Py_ssize_t i, Py_buffer* view) except -1:
        """Whether it is a record. The caller releases the view, whatever the answer."""
        PyObject_GetBuffer(<object> PyList_GET_ITEM(self.records, i), view, PyBUF_SIMPLE)
        return read_timed(<const uint8_t*> view.buf, view.len, &self.pairs, &self.timed) == 0


def count_late(list records not None, Py_ssize_t begin, int64_t before):
    """How many records from `begin` on, without a gap, name a time before this one."""
    cdef Reading reading = Reading(records)
    cdef Py_ssize_t i, n = PyList_GET_SIZE(records)
    cdef Py_buffer view
    cdef bint late
    for i in range(begin, n):
        late = reading.read(i, &view) and reading.timed.out != NO_TIME and reading.timed.out < before
        PyBuffer_Release(&view)
        if not late:
            return i - begin
    return max(n - begin, 0)


cdef inline void read_slot(dict pages, int64_t wheel_slots, int64_t tick, Slot* slot):
    """The slot of a tick as the pages have it; `last` is -1 when nothing fires then."""
    cdef int64_t at = tick % wheel_slots * SLOT
    cdef const uint8_t* p
    cdef object page = pages.get(at // PAGE)
    slot.tick = tick
    slot.first = slot.last = -1
    slot.count = slot.magic = 0
    if page is None:
        return
    p = <const uint8_t*> PyByteArray_AS_STRING(<bytearray?> page) + at % PAGE
    if get64(p) == tick and get64(p + 16) >= 0:
        slot.first = get64(p + 8)
        slot.last = get64(p + 16)
        slot.count = get32(p + 24)
        slot.magic = get32(p + 28)


def join_units(
    list records not None, Py_ssize_t begin, dict pages not None, int64_t wheel_slots, int64_t position, Py_ssize_t room,
    tuple rules not None, int64_t out=NO_TIME,
):
    """Units for messages that join the wheel, from `begin` on: (how many, units, slots that changed, counts by real topic).

    `rules`: write time, base of the roll window, window, precision, and the first time that can be joined. Ends before
    the first message that has no plain time or an earlier one, or after `room` units. The first unit is to lie at
    `position` of the timer log. `out` replaces the time of the first message. Nothing is changed.
    """
    cdef Reading reading = Reading(records)
    cdef Timed* t = &reading.timed
    cdef int64_t write_time, base, window, precision, joinable, time, excess, ticks, tick, written
    cdef Py_ssize_t i, n = min(PyList_GET_SIZE(records), begin + max(room, 0)), used = 0, k = -1
    cdef int32_t magic, step
    cdef Py_buffer view
    cdef bytes units
    cdef uint8_t* u
    cdef Slot* slots
    cdef dict known = {}, counts = {}
    cdef object topic = None, found
    write_time, base, window, precision, joinable = rules
    if n <= begin:
        return 0, b"", b"", counts
    touch_all(records, begin, n)
    units = PyBytes_FromStringAndSize(NULL, (n - begin) * UNIT)
    u = <uint8_t*> PyBytes_AS_STRING(units)
    slots = <Slot*> malloc((n - begin) * sizeof(Slot))
    if slots == NULL:
        raise MemoryError()
    try:
        for i in range(begin, n):
            try:
                if not reading.read(i, &view):
                    break
                time = out if out != NO_TIME and i == begin else t.out
                if time == NO_TIME or time < joinable:
                    break
                magic = MAGIC_DEFAULT | (MAGIC_DELETE if t.deletes else 0)
                step = -1 if t.deletes else 1
                excess = time - base - window
                if excess >= 0:
                    magic |= MAGIC_ROLL
                    ticks = window // precision
                    time = base + (ticks // 2 if excess < ticks // 3 * precision else ticks) * precision
                written = min(write_time, time)
                if time - written > 0x7FFFFFFF or time < 0:
                    break
                tick = time // precision
                if k < 0 or slots[k].tick != tick:
                    found = known.get(tick)
                    if found is None:
                        k = used
                        used += 1
                        known[tick] = k
                        read_slot(pages, wheel_slots, tick, &slots[k])
                    else:
                        k = found
                put32(u, UNIT)
                put64(u + 4, slots[k].last)
                put32(u + 12, magic)
                put64(u + 16, written)
                put32(u + 24, <int32_t> (time - written))
                put64(u + 28, t.record.physical_offset)
                put32(u + 36, t.record.size)
                put32(u + 40, <int32_t> hash_text(0, t.topic.at, t.topic.length) if t.topic.length else 0)
                put64(u + 44, 0)
                u += UNIT
                if slots[k].first < 0:
                    slots[k].first = position
                slots[k].last = position
                slots[k].count += step
                position += UNIT
                if t.topic.length and t.placed:
                    topic = t.topic.at[:t.topic.length]
                    counts[topic] = counts.get(topic, 0) + step
            finally:
                PyBuffer_Release(&view)
        else:
            i = n
        return i - begin, units[:(i - begin) * UNIT], slot_bytes(slots, used), counts_by_name(counts)
    finally:
        free(slots)


cdef bytes slot_bytes(const Slot* slots, Py_ssize_t n):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, n * SLOT)
    cdef uint8_t* p = <uint8_t*> PyBytes_AS_STRING(made)
    cdef Py_ssize_t i
    for i in range(n):
        put64(p, slots[i].tick)
        put64(p + 8, slots[i].first)
        put64(p + 16, slots[i].last)
        put32(p + 24, slots[i].count)
        put32(p + 28, slots[i].magic)
        p += SLOT
    return made


cdef dict counts_by_name(dict counts):
    return {topic.decode(): count for topic, count in counts.items()}


def set_slots(dict pages not None, int64_t wheel_slots, const uint8_t[::1] slots not None):
    """Write slots where they belong; the numbers of the pages that changed. A page that is not there is made."""
    cdef Py_ssize_t i
    cdef int64_t at
    cdef object page
    cdef set changed = set()
    for i in range(0, slots.shape[0], SLOT):
        at = get64(&slots[i]) % wheel_slots * SLOT
        page = pages.get(at // PAGE)
        if page is None:
            page = pages[at // PAGE] = bytearray(PAGE)
        memcpy(PyByteArray_AS_STRING(<bytearray?> page) + at % PAGE, &slots[i], SLOT)
        changed.add(at // PAGE)
    return changed


cdef inline int64_t floor_ticks(int64_t time, int64_t precision) noexcept nogil:
    cdef int64_t ticks = time // precision
    return ticks - 1 if time % precision < 0 else ticks


def follow_chain(const uint8_t[::1] units not None, int64_t base, int64_t end, int64_t position, int64_t tick, int64_t precision):
    """A slot's units that lie in one file, newest first: (positions, those of units that delete, where to go on, how it ended).

    `units` is the file that begins at `base` of the timer log, which ends at `end`. A chain only ever leads back, and to
    units of the same tick. GOES_ON: the place to go on is in another file, or -1. BROKEN: there is no such unit.
    FORWARDS: that unit, which is among the positions, leads forwards.
    """
    cdef Positions positions, deletes
    cdef int64_t at, previous, stop = min(end, base + units.shape[0])
    cdef int32_t magic
    cdef const uint8_t* u
    cdef int how = CHAIN_GOES_ON, code = 0
    memset(&positions, 0, sizeof(Positions))
    memset(&deletes, 0, sizeof(Positions))
    try:
        with nogil:  # each unit may be on a page of its own that is not in memory
            while base <= position < base + units.shape[0]:
                at = position - base
                if at % UNIT or position + UNIT > stop:
                    how = CHAIN_BROKEN
                    break
                u = &units[at]
                magic = get32(u + 12)
                if get32(u) != UNIT or magic & ~0xF or floor_ticks(get64(u + 16) + get32(u + 24), precision) != tick:
                    how = CHAIN_BROKEN
                    break
                code = add_position(&deletes if magic & MAGIC_DELETE and not magic & MAGIC_ROLL else &positions, position)
                if code != 0:
                    break
                previous = get64(u + 4)
                if previous >= position:
                    how = CHAIN_FORWARDS
                    break
                position = previous
        if code != 0:
            raise MemoryError()
        return as_array(&positions), as_array(&deletes), position, how
    finally:
        free(positions.list)
        free(deletes.list)


cdef struct Positions:
    int64_t* list
    Py_ssize_t count
    Py_ssize_t capacity


cdef inline int add_position(Positions* positions, int64_t position) noexcept nogil:
    cdef Py_ssize_t capacity
    if positions.count == positions.capacity:
        capacity = max(64, positions.capacity * 2)
        if resize(<void**> &positions.list, capacity * sizeof(int64_t)) != 0:
            return -1
        positions.capacity = capacity
    positions.list[positions.count] = position
    positions.count += 1
    return 0


cdef object as_array(const Positions* positions):
    made = arrays.array("q")
    made.frombytes((<const char*> positions.list)[:positions.count * sizeof(int64_t)] if positions.count else b"")
    return made
