"""The get path: walk queue units, take the records they point to, hand out one result (spec 14.1 to 14.3)."""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp

from penstock._native.endian cimport get16, get32, get64
from penstock._native.filestate cimport FileState, load_position, read_position
from penstock._native.filtering cimport Program
from penstock._native.mapping cimport Mapping
from penstock._native.prefetch cimport prefetch_read
from penstock._native.queue cimport Queue
from penstock._native.record cimport REC_OK, Properties, Record, Span, parse_record, scan_properties
from penstock._native.stored cimport Slab, StoredMessage, stored_message

FOUND = "FOUND"
NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"

cdef enum:
    SIMPLE_UNIT = 20
    BATCH_UNIT = 46
    MAX_CODES = 64
    BLANK_SIZE = 0x7FFFFFFF
    AHEAD = 12
    # Steps of a filter in one get, some ten milliseconds: the scan ends there and the next get goes on.
    MAX_WORK = 1000000

cdef int64_t EXT_ADDRESS = -2147483649


cdef class LogView:
    """The files of the log, for readers: which one holds an offset and how far it may be read. Never changes."""

    cdef list slabs
    cdef FileState** states
    cdef int count
    cdef readonly int64_t first
    cdef readonly int64_t file_size

    def __cinit__(self, list mappings not None, int64_t file_size):
        cdef int i
        cdef int64_t expected
        self.count = <int> len(mappings)
        self.file_size = file_size
        self.states = <FileState**> malloc(max(1, self.count) * sizeof(FileState*))
        if self.states == NULL:
            raise MemoryError()
        self.slabs = []
        self.first = (<Mapping> mappings[0]).state.file_from if mappings else 0
        for i in range(self.count):
            # The slab pins the mapping, so the state stays valid with this view.
            self.slabs.append(Slab(mappings[i], (<Mapping> mappings[i]).state.file_from))
            self.states[i] = &(<Mapping> mappings[i]).state

    def __dealloc__(self):
        free(self.states)

    cdef int index_of(self, int64_t offset) noexcept:
        """The file that holds `offset`, or -1. A missing middle file shifts the others: then search."""
        cdef int64_t guess = (offset - self.first) // self.file_size
        cdef int i
        if self.count == 0 or offset < self.first:
            return -1
        if guess < self.count and self.states[guess].file_from <= offset < self.states[guess].file_from + self.states[guess].size:
            return <int> guess
        for i in range(self.count):
            if self.states[i].file_from <= offset < self.states[i].file_from + self.states[i].size:
                return i
        return -1

    cdef bint holds(self, int64_t offset, int64_t size, int* index):
        cdef FileState* state
        index[0] = self.index_of(offset)
        if index[0] < 0:
            return False
        state = self.states[index[0]]
        return offset - state.file_from + size <= read_position(state)

    def slab_at(self, int64_t offset, int64_t size):
        """(slab, position) of a range that lies in one file and may be read, else None."""
        cdef int index
        if size < 0 or not self.holds(offset, size, &index):
            return None
        return self.slabs[index], offset - self.states[index].file_from

    def read(self, int64_t offset, int64_t size):
        """A view of a range, or None."""
        cdef int index
        if size < 0 or not self.holds(offset, size, &index):
            return None
        at = offset - self.states[index].file_from
        return PyMemoryView_FromObject(self.slabs[index])[at:at + size]

    cpdef StoredMessage message(self, int64_t offset, int64_t size=-1):
        """The stored message at an offset, or None. The length field is believed only within the readable part."""
        cdef int index
        cdef StoredMessage m
        cdef FileState* state
        if not self.holds(offset, 8, &index):
            return None
        state = self.states[index]
        m = stored_message(self.slabs[index], offset - state.file_from, read_position(state) - (offset - state.file_from), -1)
        if m is None or m.r.physical_offset != offset or (size >= 0 and m.r.size != size):
            return None
        return m

    def store_timestamp(self, int64_t offset, int64_t size):
        """Store time of the record at an offset, -1 when it cannot be read (spec 9.8, pickupStoreTimestamp)."""
        cdef int index
        cdef const uint8_t* p
        if size < 64 or not self.holds(offset, size, &index):
            return -1
        p = (<Slab> self.slabs[index]).base + (offset - self.states[index].file_from)
        return get64(p + (68 if p[39] & 0x10 else 56))

    @property
    def end(self):
        """End of the readable bytes of the last file; 0 without files."""
        return self.end_offset()

    cdef int64_t end_offset(self) noexcept:
        if self.count == 0:
            return 0
        return self.states[self.count - 1].file_from + read_position(self.states[self.count - 1])


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class RawRecord:
    """The bytes of one record where they lie: a buffer, as `memoryview`, `bytes` or a socket take it."""

    cdef Slab slab
    cdef int64_t position
    cdef readonly int32_t size

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*> (self.slab.base + self.position), self.size, 1, flags)

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char*> self.slab.base + self.position, self.size)


cdef inline RawRecord raw_record(Slab slab, int64_t position, int32_t size):
    cdef RawRecord made = RawRecord.__new__(RawRecord)
    made.slab = slab
    made.position = position
    made.size = size
    return made


@cython.no_gc
@cython.freelist(16)
cdef class GetResult:
    """The answer to a get: a sequence of stored messages, made when looked at, and where to go on."""

    def __cinit__(self, str status=NO_MATCHED_MESSAGE, int64_t next_begin_offset=0, int64_t min_offset=0, int64_t max_offset=0):
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.slabs = []

    def __dealloc__(self):
        free(self.places)

    def __len__(self):
        return self.count

    def __getitem__(self, object key):
        cdef Py_ssize_t i
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(self.count))]
        i = key
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError("no such message")
        return self.message(i)

    cdef StoredMessage message(self, Py_ssize_t i):
        cdef Place* place = &self.places[i]
        cdef StoredMessage m = stored_message(self.slabs[place.slab], place.position, place.size, place.queue_offset)
        if m is None:
            raise ValueError(f"the record at queue offset {place.queue_offset} is damaged")
        return m

    def __iter__(self):
        return iter(self.messages)

    @property
    def messages(self):
        """All messages as a list."""
        cdef Py_ssize_t i
        cdef list made = [None] * self.count
        for i in range(self.count):
            made[i] = self.message(i)
        return made

    @property
    def raw(self):
        """The records where they lie, one RawRecord each."""
        cdef Py_ssize_t i
        cdef list views = [None] * self.count
        for i in range(self.count):
            views[i] = raw_record(self.slabs[self.places[i].slab], self.places[i].position, self.places[i].size)
        return views

    def to_arrow(self, columns=None):
        """The messages as columns: `pyarrow.record_batch(result.to_arrow())`. `columns`: names, None for all."""
        from penstock._native.columns import decode_result  # it knows this module

        return decode_result(self, columns)

    cdef int add(self, Slab slab, int64_t position, int32_t size, int64_t queue_offset) except -1:
        cdef Py_ssize_t n = len(self.slabs)
        cdef Place* grown
        if n == 0 or self.slabs[n - 1] is not slab:
            self.slabs.append(slab)
            n += 1
        if self.count == self.capacity:
            grown = <Place*> realloc(self.places, (self.capacity * 2 if self.capacity else 32) * sizeof(Place))
            if grown == NULL:
                raise MemoryError()
            self.places = grown
            self.capacity = self.capacity * 2 if self.capacity else 32
        self.places[self.count].position = position
        self.places[self.count].size = size
        self.places[self.count].queue_offset = queue_offset
        self.places[self.count].slab = <int32_t> (n - 1)
        self.count += 1
        return 0

    def __repr__(self):
        return f"<GetResult {self.status}, {self.count} messages, next {self.next_begin_offset} of {self.min_offset}..{self.max_offset}>"


cdef class UnitReader:
    """The loop of spec 14.1, with the limits of one store."""

    cdef public int64_t filter_bytes
    cdef public int64_t memory_limit      # distance from the end of the log that counts as in memory
    cdef public int64_t memory_bytes
    cdef public int64_t memory_count
    cdef public int64_t disk_bytes
    cdef public int64_t disk_count
    cdef public int64_t log_file_size

    def get(
        self, Queue queue not None, Slab units, LogView log not None, int64_t offset, int64_t max_messages, int64_t max_bytes,
        Program program=None,
    ):
        """A get without tags from a simple queue: conditions in the order of spec 14.1, then the loop.

        None when `units` is not the file that holds `offset`: the caller has to fetch that first.
        """
        cdef int64_t low = load_position(&queue.state.min_logic) // SIMPLE_UNIT
        cdef int64_t end = load_position(&queue.state.max_logic), high = end // SIMPLE_UNIT, file_from
        if high == 0:
            return GetResult.__new__(GetResult, "NO_MESSAGE_IN_QUEUE", 0, low, high)
        if offset < low:
            return GetResult.__new__(GetResult, "OFFSET_TOO_SMALL", low, low, high)
        if offset == high:
            return GetResult.__new__(GetResult, "OFFSET_OVERFLOW_ONE", offset, low, high)
        if offset > high:
            return GetResult.__new__(GetResult, "OFFSET_OVERFLOW_BADLY", high, low, high)
        file_from = offset * SIMPLE_UNIT - offset * SIMPLE_UNIT % queue.state.file_size
        if units is None or units.file_from != file_from:
            return None
        end = min(end - file_from, queue.state.file_size)
        return self.walk_units(
            units, offset * SIMPLE_UNIT - file_from, end, SIMPLE_UNIT, log, None, offset, offset, low, high, max_messages, max_bytes,
            log.end_offset(), None, None, program, None,
        )

    def read(
        self, Slab units not None, int64_t begin, int64_t end, int unit_size, LogView log, object fetch, int64_t first_offset,
        int64_t offset, int64_t min_offset, int64_t max_offset, int64_t max_messages, int64_t max_bytes, int64_t max_physical,
        object codes, object resolve, Program program=None, object admit=None,
    ):
        """Messages of the units in [begin, end) of `units`, the first of which has queue offset `first_offset`.

        Records come from `log`, or without one from `fetch(offset, size) -> (Slab, position) | None`. `codes`: accepted
        tag hashes, None for all. `resolve`: turns an extension address into a tags code, None if it is lost.
        `program`: a filter by properties; `admit` tells of a place and an extension address whether it may be true there.
        """
        return self.walk_units(
            units, begin, end, unit_size, log, fetch, first_offset, offset, min_offset, max_offset, max_messages, max_bytes,
            max_physical, codes, resolve, program, admit,
        )

    cdef GetResult walk_units(
        self, Slab units, int64_t begin, int64_t end, int unit_size, LogView log, object fetch, int64_t first_offset,
        int64_t offset, int64_t min_offset, int64_t max_offset, int64_t max_messages, int64_t max_bytes, int64_t max_physical,
        object codes, object resolve, Program program, object admit,
    ):
        cdef GetResult result = GetResult.__new__(GetResult, NO_MATCHED_MESSAGE, offset, min_offset, max_offset)
        cdef const uint8_t* u
        cdef Py_ssize_t i, n
        cdef int64_t physical, tags, queue_offset, batch, collected = 0, skip_before = -1
        cdef int32_t size, code_count = 0
        cdef int32_t accepted[MAX_CODES]
        cdef int index, k, known = -1
        cdef bint in_memory, matches
        cdef Slab slab
        cdef int64_t position = 0, readable = 0, known_from = 0, ahead
        cdef int32_t ahead_size
        cdef Py_ssize_t fetched_to = 1
        cdef const uint8_t* p
        cdef Record record
        cdef int64_t scan_limit = max(self.filter_bytes, max_messages * unit_size)
        cdef bint removed = False
        if begin < 0 or end > units.length:
            raise ValueError("units outside of the slab")
        n = (end - begin) // unit_size
        if codes is not None:
            if len(codes) > MAX_CODES:
                raise ValueError(f"a subscription has at most {MAX_CODES} tags")
            for code in codes:
                accepted[code_count] = code
                code_count += 1
        max_bytes = max(100, min(max_bytes, 128 << 20))
        if program is not None:
            program.work = 0
        for i in range(n):
            if result.next_begin_offset >= max_offset:
                break
            if program is not None and program.work > MAX_WORK:
                break
            u = units.base + begin + i * unit_size
            physical = get64(u)
            size = get32(u + 8)
            tags = get64(u + 12)
            if unit_size == BATCH_UNIT:
                queue_offset = get64(u + 28)
                batch = get16(u + 36)
            else:
                queue_offset = first_offset + i
                batch = 1
            if (queue_offset - offset) * unit_size >= scan_limit:
                break
            in_memory = max_physical - physical <= self.memory_limit
            if result.message_count > 0:
                if (
                    result.message_count + batch > max_messages or collected + size > max_bytes
                    or collected + size > (self.memory_bytes if in_memory else self.disk_bytes)
                    or result.message_count > (self.memory_count if in_memory else self.disk_count) - 1
                ):
                    break
            if collected >= max_bytes:
                break
            result.suggest_slave = not in_memory
            result.next_begin_offset = queue_offset + batch
            if skip_before >= 0 and physical < skip_before:
                continue
            if codes is not None:
                if tags <= EXT_ADDRESS:
                    resolved = resolve(tags) if resolve is not None else None
                    matches = resolved is None
                    tags = resolved if resolved is not None else 0
                else:
                    matches = False
                for k in range(code_count):
                    if <int32_t> tags == accepted[k]:
                        matches = True
                        break
                if not matches:
                    continue
            elif admit is not None and tags <= EXT_ADDRESS and not admit(physical, tags):
                continue
            p = NULL
            if size > 0 and size != BLANK_SIZE:
                if log is not None:
                    if known >= 0 and physical >= known_from and physical + size <= known_from + readable:
                        position = physical - known_from
                    elif log.holds(physical, size, &index):
                        known = index
                        slab = log.slabs[index]
                        known_from = slab.file_from
                        readable = read_position(log.states[index])
                        position = physical - known_from
                    else:
                        position = -1
                    if position >= 0:
                        p = slab.base + position
                        # Checking a record waits for memory three times: fetch the next ones meanwhile.
                        while fetched_to < n and fetched_to <= i + AHEAD:
                            ahead = get64(units.base + begin + fetched_to * unit_size) - known_from
                            ahead_size = get32(units.base + begin + fetched_to * unit_size + 8)
                            if 0 <= ahead and 128 <= ahead_size and ahead + ahead_size <= readable:
                                prefetch_read(slab.base + ahead)
                                prefetch_read(slab.base + ahead + 64)
                                prefetch_read(slab.base + ahead + ahead_size - 100)
                            fetched_to += 1
                else:
                    fetched = fetch(physical, size)
                    if fetched is not None:
                        slab, position = fetched
                        p = slab.base + position
                # A unit may point at bytes that are no longer (or not yet) its record: then it alone counts as removed.
                if p != NULL and (
                    size < 91 or get32(p) != size or parse_record(p, size, &record) != REC_OK or record.physical_offset != physical
                ):
                    p = NULL
            if p == NULL:
                removed = removed or result.count == 0
                # With the head of the log all units of that file are gone. A blank or a damaged unit tells nothing of others.
                if size != BLANK_SIZE and log is not None and 0 <= physical < log.first:
                    skip_before = physical - physical % self.log_file_size + self.log_file_size
                continue
            if program is not None and not program.wants(p + record.properties_at, record.properties_length):
                continue
            result.add(slab, position, size, queue_offset)
            result.message_count += batch
            collected += size
        result.buffer_size = collected
        if result.count:
            result.status = FOUND
        elif removed:
            result.status = MESSAGE_WAS_REMOVING
        return result


def matching(LogView log not None, list offsets not None, bytes topic not None, bytes key not None, bint by_tags=False):
    """The messages at `offsets` that really have this topic and key, each once, in log order.

    The index compares hashes only; here the text decides.
    """
    cdef list found = []
    cdef StoredMessage m
    cdef Properties properties
    cdef int64_t previous = -1, offset
    cdef const uint8_t* t = <const uint8_t*> <const char*> topic
    cdef const uint8_t* k = <const uint8_t*> <const char*> key
    cdef int32_t topic_length = <int32_t> len(topic), key_length = <int32_t> len(key)
    for item in sorted(offsets):
        offset = item
        if offset == previous:
            continue
        previous = offset
        m = log.message(offset)
        if m is None or m.r.topic_length != topic_length or memcmp(m.p + m.r.topic_at, t, topic_length) != 0:
            continue
        scan_properties(m.p + m.r.properties_at, m.r.properties_length, &properties)
        if by_tags:
            if same(properties.tags, k, key_length):
                found.append(m)
        elif same(properties.unique_key, k, key_length) or has_word(properties.keys, k, key_length):
            found.append(m)
    return found


cdef inline bint same(Span span, const uint8_t* k, int32_t n) noexcept:
    return span.length == n and memcmp(span.at, k, n) == 0


cdef bint has_word(Span words, const uint8_t* k, int32_t n) noexcept:
    """Whether the space-separated words contain one that equals `k`."""
    cdef int32_t at = 0, start
    while at < words.length:
        start = at
        while at < words.length and words.at[at] != 32:
            at += 1
        if at - start == n and memcmp(words.at + start, k, n) == 0:
            return True
        at += 1
    return False
