"""Index entries: put, select, rebuild of the slot heads. Plain twin: format.indexfile."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from penstock._native.endian cimport get32, get64, put32, put64
from penstock._native.record cimport Span, hash_text

cdef enum:
    HEADER = 40
    ENTRY = 20


cdef int32_t index_hash(uint32_t text_hash) noexcept nogil:
    """abs() as Java has it: the one value without a positive twin becomes 0."""
    cdef int32_t value = <int32_t> text_hash
    if value < 0:
        value = <int32_t> (0u - text_hash)
    return value if value >= 0 else 0


cdef int32_t key_hashes(uint32_t prefix, Span unique, Span keys, Span tags, int32_t* out, int32_t most) noexcept nogil:
    """Hashes of one record's keys in spec 10.4's order; how many, or -1 when `most` may be too few for them.

    `prefix` is the hash of `<topic>#`.
    """
    cdef int32_t count = 0, at = 0, start
    if unique.length > 0:
        out[count] = index_hash(hash_text(prefix, unique.at, unique.length))
        count += 1
    while at < keys.length:
        start = at
        while at < keys.length and keys.at[at] != 32:
            at += 1
        if at > start:
            if count >= most - 1:
                return -1
            out[count] = index_hash(hash_text(prefix, keys.at + start, at - start))
            count += 1
        at += 1
    if tags.length > 0:
        out[count] = index_hash(hash_text(hash_text(prefix, b"T#", 2), tags.at, tags.length))
        count += 1
    return count


cdef inline uint8_t* slot_at(IndexState* s, int32_t key_hash) noexcept nogil:
    return s.base + HEADER + 4 * <int64_t> (key_hash % s.slots)


cdef inline uint8_t* entry_at(IndexState* s, int32_t number) noexcept nogil:
    return s.base + HEADER + 4 * <int64_t> s.slots + ENTRY * <int64_t> number


cdef bint index_put(IndexState* s, int32_t key_hash, int64_t offset, int64_t timestamp) noexcept nogil:
    """Spec 10.3; False when the file is full. The header stays in memory until index_store_header."""
    cdef uint8_t* slot = slot_at(s, key_hash)
    cdef uint8_t* entry
    cdef int32_t head
    cdef int64_t seconds
    if s.count >= s.capacity:
        return False
    head = get32(slot)
    if head <= 0 or head > s.count:
        head = 0
    seconds = (timestamp - s.begin_timestamp) // 1000 if s.begin_timestamp > 0 and timestamp > s.begin_timestamp else 0
    if seconds > 2147483647:
        seconds = 2147483647
    entry = entry_at(s, s.count)
    put32(entry, key_hash)
    put64(entry + 4, offset)
    put32(entry + 12, <int32_t> seconds)
    put32(entry + 16, head)
    put32(slot, s.count)
    if s.count <= 1:
        s.begin_offset = offset
        s.begin_timestamp = timestamp
    if head == 0:
        s.used_slots += 1
    s.count += 1
    s.end_offset = offset
    s.end_timestamp = timestamp
    return True


cdef void index_store_header(IndexState* s) noexcept nogil:
    put64(s.base, s.begin_timestamp)
    put64(s.base + 8, s.end_timestamp)
    put64(s.base + 16, s.begin_offset)
    put64(s.base + 24, s.end_offset)
    put32(s.base + 32, s.used_slots)
    put32(s.base + 36, s.count)


def key_hash(const uint8_t[::1] key not None):
    """The index hash of `<topic>#<key>`."""
    return index_hash(hash_text(0, &key[0], <int32_t> key.shape[0])) if key.shape[0] else 0


cdef class Index:
    """Entries of one index file, over writable or read-only memory of exactly its size."""

    def __cinit__(self, object memory not None, int32_t slots, int32_t capacity, bint writable=True):
        cdef Py_buffer buffer
        if slots < 1 or capacity < 2:
            raise ValueError("an index file has at least one slot and two entries")
        PyObject_GetBuffer(memory, &buffer, PyBUF_SIMPLE | (PyBUF_WRITABLE if writable else 0))
        try:
            if buffer.len < HEADER + 4 * <int64_t> slots + ENTRY * <int64_t> capacity:
                raise ValueError("index memory is smaller than its slots and entries")
            self.state.base = <uint8_t*> buffer.buf
        finally:
            PyBuffer_Release(&buffer)
        self.memory = memory
        self.state.slots = slots
        self.state.capacity = capacity
        self.load_header()

    @property
    def room(self):
        """How many more entries it takes."""
        return self.state.capacity - self.state.count

    def load_header(self):
        """Take the counters from the memory again: another process may be writing it."""
        cdef uint8_t* p = self.state.base
        self.state.begin_timestamp = get64(p)
        self.state.end_timestamp = get64(p + 8)
        self.state.begin_offset = get64(p + 16)
        self.state.end_offset = get64(p + 24)
        self.state.used_slots = get32(p + 32)
        self.state.count = get32(p + 36)
        if self.state.count <= 0:
            self.state.count = 1
        if self.state.count > self.state.capacity:
            self.state.count = self.state.capacity

    def store_header(self):
        index_store_header(&self.state)

    def seed(self, int64_t timestamp, int64_t offset):
        """Carry the previous file's end over into a new one, as RocketMQ does."""
        if timestamp > 0:
            self.state.begin_timestamp = self.state.end_timestamp = timestamp
        if offset > 0:
            self.state.begin_offset = self.state.end_offset = offset
        index_store_header(&self.state)

    def put(self, int32_t hashed, int64_t offset, int64_t timestamp):
        """Add one entry; False when the file is full."""
        cdef bint put = index_put(&self.state, hashed, offset, timestamp)
        index_store_header(&self.state)
        return put

    def select(self, int32_t hashed, int limit, int64_t begin, int64_t end):
        """Physical offsets under a hash, newest first (spec 10.5). Callers check topic and key of what they fetch."""
        cdef list found = []
        cdef IndexState* s = &self.state
        cdef int32_t number, previous, steps = 0
        cdef int64_t when
        cdef uint8_t* entry
        if hashed < 0 or s.count <= 1:
            return found
        number = get32(slot_at(s, hashed))
        # The chain of a damaged file may be a ring: no chain is longer than the file has entries.
        while 0 < number <= s.count and number < s.capacity and len(found) < limit and steps < s.count:
            steps += 1
            entry = entry_at(s, number)
            if get32(entry + 12) < 0:
                break
            when = s.begin_timestamp + get32(entry + 12) * <int64_t> 1000
            if get32(entry) == hashed and begin <= when <= end:
                found.append(get64(entry + 4))
            previous = get32(entry + 16)
            if previous == number or when < begin:
                break
            number = previous
        return found

    def cut(self, int32_t count, int64_t written=-1):
        """Keep entries 1 to count - 1: erase the others, make the slots that led to them and the header anew.

        Used after a crash, when entries past the synced count may or may not have reached the disk. A slot that leads
        to a kept entry, or to none, was not touched since that sync and is right. From byte `written` on the file holds
        zeros only, if it is given: they need not be written again.
        """
        cdef IndexState* s = &self.state
        cdef int32_t number, hashed, head, at
        cdef int64_t seconds = 0, first, size, lost = 0
        cdef uint8_t* entry
        cdef uint8_t* marked
        cdef int32_t* heads
        count = max(1, min(count, s.capacity))
        first = entry_at(s, count) - s.base
        size = entry_at(s, s.capacity) - s.base
        if written < 0 or written > size:
            written = size
        marked = <uint8_t*> calloc(s.slots // 8 + 1, 1)
        heads = <int32_t*> calloc(s.slots, 4)
        if marked == NULL or heads == NULL:
            free(marked)
            free(heads)
            raise MemoryError()
        with nogil:
            s.used_slots = 0
            for at in range(s.slots):
                head = get32(s.base + HEADER + 4 * <int64_t> at)
                if head < 0 or head >= count:
                    marked[at >> 3] |= <uint8_t> (1 << (at & 7))
                    lost += 1
                elif head > 0:
                    s.used_slots += 1
            if lost:
                for number in range(1, count):
                    entry = entry_at(s, number)
                    hashed = get32(entry)
                    if hashed < 0:
                        continue
                    at = hashed % s.slots
                    if marked[at >> 3] & (1 << (at & 7)):
                        # Most are right already: a page that is not written need not be synced.
                        if get32(entry + 16) != heads[at]:
                            put32(entry + 16, heads[at])
                        heads[at] = number
                # Each slot goes from one value to the other at once: a crash meanwhile finds either.
                for at in range(s.slots):
                    if marked[at >> 3] & (1 << (at & 7)):
                        put32(s.base + HEADER + 4 * <int64_t> at, heads[at])
                        s.used_slots += heads[at] > 0
            if written > first:
                memset(s.base + first, 0, written - first)
            if count > 1:
                s.begin_offset = get64(entry_at(s, 1) + 4)
                s.end_offset = get64(entry_at(s, count - 1) + 4)
                seconds = get32(entry_at(s, count - 1) + 12)
        free(marked)
        free(heads)
        s.count = count
        if count == 1:
            s.begin_timestamp = s.end_timestamp = s.begin_offset = s.end_offset = 0
        else:
            s.end_timestamp = s.begin_timestamp + seconds * 1000
        index_store_header(s)

    def faults(self):
        """Entries or slots that contradict each other, as (byte position, what); at most 1 000 of them."""
        cdef IndexState* s = &self.state
        cdef int32_t number, hashed, previous, head
        cdef list found = []
        cdef uint8_t* entry
        for number in range(1, s.count):
            if len(found) >= 1000:
                return found
            entry = entry_at(s, number)
            hashed = get32(entry)
            previous = get32(entry + 16)
            if hashed < 0:
                found.append((entry - s.base, f"entry {number} has the negative hash {hashed}"))
                continue
            if previous < 0 or previous >= number:
                found.append((entry - s.base, f"entry {number} is chained to entry {previous}, which is not older"))
            elif previous and get32(entry_at(s, previous)) % s.slots != hashed % s.slots:
                found.append((entry - s.base, f"entry {number} is chained to entry {previous} of another slot"))
            head = get32(slot_at(s, hashed))
            if head < number:
                found.append((slot_at(s, hashed) - s.base, f"slot {hashed % s.slots} heads at {head}, before its entry {number}"))
            if get32(entry + 12) < 0 or get64(entry + 4) < 0:
                found.append((entry - s.base, f"entry {number} has a negative time or offset"))
        return found

    def entries(self):
        """(hash, physical offset, seconds, previous) of every entry in order."""
        cdef IndexState* s = &self.state
        cdef uint8_t* entry
        cdef int32_t number
        for number in range(1, s.count):
            entry = entry_at(s, number)
            yield get32(entry), get64(entry + 4), get32(entry + 12), get32(entry + 16)

    @property
    def count(self):
        """The next entry number; 1 in an empty file."""
        return self.state.count

    @property
    def used_slots(self):
        return self.state.used_slots

    @property
    def is_full(self):
        return self.state.count >= self.state.capacity

    @property
    def begin_timestamp(self):
        return self.state.begin_timestamp

    @begin_timestamp.setter
    def begin_timestamp(self, int64_t value):
        self.state.begin_timestamp = value

    @property
    def end_timestamp(self):
        return self.state.end_timestamp

    @end_timestamp.setter
    def end_timestamp(self, int64_t value):
        self.state.end_timestamp = value

    @property
    def begin_offset(self):
        return self.state.begin_offset

    @property
    def end_offset(self):
        return self.state.end_offset


def guess_layout(const uint8_t[::1] memory not None):
    """(slots, capacity) for which the newest and the oldest entry of a file agree with their slots; None if no pair does.

    The size of a file fixes one unknown; its content has to tell the other. Callers check the answer with `Index.faults`.
    """
    cdef int64_t size = memory.shape[0], room = size - HEADER, slots, capacity
    cdef const uint8_t* p
    cdef const uint8_t* entries
    cdef int32_t count, newest, oldest
    if room < 44 or room % 4:
        return None
    p = &memory[0]
    count = get32(p + 36)
    if count <= 1:
        return None
    capacity = count
    while room - ENTRY * capacity >= 4:
        slots = (room - ENTRY * capacity) // 4
        entries = p + HEADER + 4 * slots
        newest = get32(entries + ENTRY * <int64_t> (count - 1))
        oldest = get32(entries + ENTRY)
        if (
            newest >= 0 and oldest >= 0 and get32(p + HEADER + 4 * (newest % slots)) == count - 1
            and get32(p + HEADER + 4 * (oldest % slots)) >= 1 and get32(entries + ENTRY + 16) == 0
        ):
            return slots, capacity
        capacity += 1
    return None
