"""Timer messages whose time has come, as the records of the places they belong to. Plain twin: format.timercopy."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

import array as arrays

from penstock._native.endian cimport put16, put32, put64
from penstock._native.pairs cimport Pair, Pairs, free_pairs, is_named, read_pairs, unite_pairs
from penstock._native.record cimport (
    MAGIC_V1, MAGIC_V2, PROPERTIES_LIMIT, REC_OK, SYS_INNER_BATCH, Record, Span, parse_record, penstock_crc32, penstock_crc_setup,
)
from penstock._native.text cimport Text, free_text, make_room
from penstock._native.touching cimport touch_all

penstock_crc_setup()

cdef enum:
    MOST_DIGITS = 9
    NUMBER_ROOM = 24

cdef struct Number:  # as text
    char digits[NUMBER_ROOM]
    int32_t length


cdef inline void write_number(Number* number, int64_t value) noexcept nogil:
    """The decimal text of a number that is not negative."""
    cdef char reversed[NUMBER_ROOM]
    cdef int32_t n = 0, i
    while True:
        reversed[n] = <char> (48 + value % 10)
        value //= 10
        n += 1
        if value == 0:
            break
    for i in range(n):
        number.digits[i] = reversed[n - 1 - i]
    number.length = n


cdef inline int64_t small_number(Span text) noexcept nogil:
    """A few digits and nothing else; -1 for whatever else there is."""
    cdef int64_t value = 0
    cdef int32_t i
    if text.length < 1 or text.length > MOST_DIGITS:
        return -1
    for i in range(text.length):
        if text.at[i] < 48 or text.at[i] > 57:
            return -1
        value = value * 10 + text.at[i] - 48
    return value


cdef class Copying:
    """Copies of one run, one behind the other."""

    cdef Pairs pairs
    cdef Text made
    cdef Record record
    cdef Number enqueued
    cdef Number dequeued
    cdef Number rolled
    cdef Span topic
    cdef Span unique
    cdef int64_t queue_id
    cdef bint deletes

    def __cinit__(self):
        memset(&self.pairs, 0, sizeof(Pairs))
        memset(&self.made, 0, sizeof(Text))

    def __dealloc__(self):
        free_pairs(&self.pairs)
        free_text(&self.made)

    cdef bint read(self, const uint8_t* p, int64_t n, bytes held, int64_t max_body) noexcept:
        """Whether this is a plain record of the topic `held`, with a place that it belongs to."""
        cdef Record* r = &self.record
        cdef Pair* pair
        cdef Span times
        cdef int32_t i
        if parse_record(p, n, r) != REC_OK or r.size != n or r.sys_flag & SYS_INNER_BATCH or r.body_length > max_body:
            return False
        if r.topic_length != len(held) or memcmp(p + r.topic_at, <const char*> held, r.topic_length) != 0:
            return False
        if read_pairs(&self.pairs, p + r.properties_at, r.properties_length) != 0 or unite_pairs(&self.pairs) != 0:
            return False
        self.topic.length = self.unique.length = 0
        self.queue_id = -1
        self.deletes = False
        times.length = 0
        times.at = NULL
        for i in range(self.pairs.count):
            pair = &self.pairs.list[i]
            if pair.name.length == 0:
                continue
            if is_named(pair, b"REAL_TOPIC", 10):
                self.topic = pair.value
            elif is_named(pair, b"REAL_QID", 8):
                self.queue_id = small_number(pair.value)
            elif is_named(pair, b"UNIQ_KEY", 8):
                self.unique = pair.value
            elif is_named(pair, b"TIMER_DEL_UNIQKEY", 17):
                self.deletes = True
            elif is_named(pair, b"TIMER_ROLL_TIMES", 16):
                times = pair.value
            elif is_named(pair, b"INNER_NUM", 9) or is_named(pair, b"INNER_MULTI_DISPATCH", 20):
                return False
        if times.length and small_number(times) < 0:
            return False
        write_number(&self.rolled, small_number(times) + 1 if times.length else 1)
        return self.topic.length > 0 and self.queue_id >= 0

    cdef int32_t write_properties(self, uint8_t* p, bint roll) noexcept:
        """Their length; with a `p` they are written there."""
        cdef Pair* pair
        cdef int32_t i, length = 0
        cdef bint enqueued = False, dequeued = False, rolled = not roll
        for i in range(self.pairs.count):
            pair = &self.pairs.list[i]
            if pair.name.length == 0 or is_named(pair, b"__CRC32#", 8):
                continue
            if is_named(pair, b"TIMER_ENQUEUE_MS", 16):
                enqueued = True
                length = put_pair(p, length, pair.name.at, pair.name.length, <const uint8_t*> self.enqueued.digits, self.enqueued.length)
            elif is_named(pair, b"TIMER_DEQUEUE_MS", 16):
                dequeued = True
                length = put_pair(p, length, pair.name.at, pair.name.length, <const uint8_t*> self.dequeued.digits, self.dequeued.length)
            elif roll and is_named(pair, b"TIMER_ROLL_TIMES", 16):
                rolled = True
                length = put_pair(p, length, pair.name.at, pair.name.length, <const uint8_t*> self.rolled.digits, self.rolled.length)
            else:
                length = put_pair(p, length, pair.name.at, pair.name.length, pair.value.at, pair.value.length)
        if not enqueued:
            length = put_pair(
                p, length, <const uint8_t*> b"TIMER_ENQUEUE_MS", 16, <const uint8_t*> self.enqueued.digits, self.enqueued.length
            )
        if not dequeued:
            length = put_pair(
                p, length, <const uint8_t*> b"TIMER_DEQUEUE_MS", 16, <const uint8_t*> self.dequeued.digits, self.dequeued.length
            )
        if not rolled:
            length = put_pair(
                p, length, <const uint8_t*> b"TIMER_ROLL_TIMES", 16, <const uint8_t*> self.rolled.digits, self.rolled.length
            )
        return length

    cdef bint write(self, const uint8_t* p, Span topic, int32_t queue_id, bint roll, int64_t max_record) except -1:
        """Add the copy under another topic; False when it would be too long."""
        cdef Record* r = &self.record
        cdef int32_t properties = self.write_properties(NULL, roll)
        cdef int32_t wide = 1 if topic.length > 127 else 0
        cdef int64_t size = r.body_at + r.body_length + 1 + wide + topic.length + 2 + properties
        cdef uint8_t* to
        if properties > PROPERTIES_LIMIT or size > max_record:
            return False
        if self.made.used + size > self.made.capacity and make_room(&self.made, size) != 0:
            raise MemoryError()
        to = self.made.data + self.made.used
        memcpy(to, p, r.body_at + r.body_length)
        put32(to, <int32_t> size)
        put32(to + 4, MAGIC_V2 if wide else MAGIC_V1)
        put32(to + 8, <int32_t> (penstock_crc32(p + r.body_at, r.body_length) & 0x7FFFFFFF) if r.body_length else 0)
        put32(to + 12, queue_id)
        memset(to + 20, 0, 16)                 # queue offset and place: the log gives them
        memset(to + r.store_host_at - 8, 0, 8)  # and the store time
        put64(to + r.body_at - 12, 0)
        to += r.body_at + r.body_length
        if wide:
            put16(to, <int16_t> topic.length)
        else:
            to[0] = <uint8_t> topic.length
        to += 1 + wide
        memcpy(to, topic.at, topic.length)
        put16(to + topic.length, <int16_t> properties)
        self.write_properties(to + topic.length + 2, roll)
        self.made.used += size
        return True


cdef inline int32_t put_pair(
    uint8_t* p, int32_t at, const uint8_t* name, int32_t n, const uint8_t* value, int32_t length
) noexcept nogil:
    """Write a pair behind the first `at` bytes, if there is a `p`; where it ends."""
    if p != NULL:
        memcpy(p + at, name, n)
        p[at + n] = 1
        memcpy(p + at + n + 1, value, length)
        p[at + n + 1 + length] = 2
    return at + n + length + 2


def copy_due(
    list records not None, const int64_t[::1] times not None, bytes held not None, int64_t now, bint roll, object deleted not None,
    int64_t max_body, int64_t max_record, int64_t most_bytes,
):
    """Copies of timer messages for where they belong: (records, where each begins, the real queue of each, real queues).

    Records of the topic `held`; their enqueue times are `times`, they leave the wheel `now`. With `roll` they go back to
    queue 0 of that topic. What a record of a log is given by its place is zero. Ends before the first one that is not
    plain (no record or one of another topic, without a place, an inner batch, one that deletes another, too long), that
    has a key among `deleted` (bytes), and after `most_bytes`.
    """
    cdef Copying copying = Copying()
    cdef array.array begins = arrays.array("q"), slots = arrays.array("i")
    cdef list queues = []
    cdef dict known = {}
    cdef Py_ssize_t i
    cdef Py_buffer view
    cdef Span topic
    cdef int32_t target = 0
    cdef int64_t begin
    cdef object name, number
    topic.at = <const uint8_t*> <const char*> held
    topic.length = <int32_t> len(held)
    write_number(&copying.dequeued, now)
    touch_all(records, 0, len(records))
    for i in range(len(records)):
        record = records[i]
        if record is None or copying.made.used >= most_bytes or times[i] < 0:
            break
        PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
        try:
            if not copying.read(<const uint8_t*> view.buf, view.len, held, max_body) or (copying.deletes and not roll):
                break
            if deleted and is_deleted(copying, deleted):
                break
            if not roll:
                topic = copying.topic
                target = <int32_t> copying.queue_id
            write_number(&copying.enqueued, times[i])
            begin = copying.made.used
            if not copying.write(<const uint8_t*> view.buf, topic, target, roll, max_record):
                break
            name = (copying.topic.at[:copying.topic.length], copying.queue_id)
            number = known.get(name)
            if number is None:
                number = known[name] = len(queues)
                queues.append((name[0].decode(), name[1]))
            begins.append(begin)
            slots.append(number)
        finally:
            PyBuffer_Release(&view)
    return PyByteArray_FromStringAndSize(<const char*> copying.made.data, copying.made.used), begins, slots, queues


cdef bint is_deleted(Copying copying, object deleted):
    """By its unique key, bare or behind its topic and a plus."""
    cdef bytes key
    if not copying.unique.length:
        return False
    key = copying.unique.at[:copying.unique.length]
    return key in deleted or copying.topic.at[:copying.topic.length] + b"+" + key in deleted
