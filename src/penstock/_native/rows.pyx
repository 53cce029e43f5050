"""Checked records become Spark's rows: selected, inner batches unwrapped, batches bounded in rows and in bytes."""

from cpython.bytes cimport PyBytes_AS_STRING
from cython cimport final
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from penstock._native.columns cimport BODY, KEYS, PROPERTIES, TAGS, UNIQUE_KEY, Batch, Builder, raise_for
from penstock._native.columns import MAX_BATCH_BYTES
from penstock._native.endian cimport get16, get32, get64
from penstock._native.record cimport (
    CHECK_CRC, CHECK_OFFSET, CHECK_TORN, REC_OK, SYS_COMPRESSED, SYS_INNER_BATCH, Properties, Record, check_record,
    parse_number, parse_record, penstock_crc_setup, scan_properties,
)
from penstock._native.record import STOPS
from penstock._native.selection cimport ASK, TAKE, Selection
from penstock._native.text cimport resize

penstock_crc_setup()

cdef enum:
    SAMPLE = 64
    FULL_BATCH = 1
    SIMPLE_UNIT = 20
    BATCH_UNIT = 46
    BLANK_SIZE = 0x7FFFFFFF
    BLOCK_HEAD = 20
    ROW_COST = 96          # what a row takes beside its texts, about


@final
cdef class Decoder:
    """Rows so far, of records that are fed in the order of a log or of a queue.

    `feed` stops when a batch is full; `take` hands it out. A batch has at most `max_rows` rows and about `max_bytes`
    bytes, a single record (or inner batch) that is larger aside.
    """

    cdef Builder builder
    cdef Selection selection
    cdef tuple columns
    cdef bint unwrap
    cdef bint want_body
    cdef bint want_properties
    cdef int64_t max_rows
    cdef int64_t max_bytes
    cdef int64_t weight
    cdef int64_t* compressed     # row, codec
    cdef int64_t compressed_count
    cdef int64_t compressed_capacity
    cdef readonly int64_t records

    def __cinit__(self, columns, *, Selection selection=None, int64_t max_rows=16384, int64_t max_bytes=4 << 20, bint unwrap=True):
        cdef int i, field
        if max_rows < 1 or max_bytes < 1:
            raise ValueError("a batch has at least one row")
        self.columns = tuple(columns)
        self.selection = Selection() if selection is None else selection
        self.max_rows = max_rows
        self.max_bytes = min(max_bytes, <int64_t> MAX_BATCH_BYTES)
        self.unwrap = unwrap
        self.builder = Builder(self.columns, True)
        for i in range(self.builder.count):
            field = self.builder.columns[i].field
            self.want_body = self.want_body or field == BODY
            self.want_properties = self.want_properties or field in (PROPERTIES, KEYS, TAGS, UNIQUE_KEY)

    def __dealloc__(self):
        free(self.compressed)

    def __len__(self):
        return self.builder.rows

    cdef int note_compressed(self, int sys_flag) noexcept nogil:
        cdef int64_t capacity = max(64, self.compressed_capacity * 2)
        if self.compressed_count + 2 > self.compressed_capacity:
            if resize(<void**> &self.compressed, capacity * sizeof(int64_t)) != 0:
                return -1
            self.compressed_capacity = capacity
        self.compressed[self.compressed_count] = self.builder.rows
        self.compressed[self.compressed_count + 1] = (sys_flag >> 8) & 7
        self.compressed_count += 2
        return 0

    cdef inline int row(self, const uint8_t* p, const Record* r, int64_t queue_offset, const uint8_t* limit) noexcept nogil:
        """One more row; FULL_BATCH before it when there is no room."""
        cdef int64_t cost = ROW_COST
        cdef int code
        if self.want_body:
            cost += r.body_length
        if self.want_properties:
            cost += r.properties_length
        if self.want_body and r.sys_flag & SYS_COMPRESSED:
            if self.note_compressed(r.sys_flag) != 0:
                return -1
        code = self.builder.add(p, r, queue_offset, limit)
        if code == 0:
            self.weight += cost
            self.selection.took(queue_offset)
        return code

    cdef inline bint full(self, const Record* r) noexcept nogil:
        cdef int64_t cost = ROW_COST + (r.body_length if self.want_body else 0)
        return self.builder.rows >= self.max_rows or (self.builder.rows > 0 and self.weight + cost > self.max_bytes)

    cdef int inner(self, const uint8_t* p, const Record* r, int64_t base, int64_t start, int64_t end, const uint8_t* limit) noexcept nogil:
        """The messages of an inner batch (spec 3), those with queue offsets in [start, end). Lengths were checked."""
        cdef Record one = r[0]
        cdef int32_t at = r.body_at, stop = r.body_at + r.body_length, length
        cdef int64_t number = 0
        cdef int code
        while at < stop:
            one.flag = get32(p + at + 12)
            one.body_at = at + BLOCK_HEAD
            one.body_length = get32(p + at + 16)
            at = one.body_at + one.body_length
            length = get16(p + at)
            one.properties_at = at + 2
            one.properties_length = length
            at += 2 + length
            if start <= base + number < end:
                code = self.row(p, &one, base + number, limit)
                if code != 0:
                    return code
            number += 1
        return 0

    cdef bint is_batch(self, const uint8_t* p, const Record* r) noexcept nogil:
        """Whether the blocks of an inner batch fill its body: anything else stays one row."""
        cdef int32_t at = r.body_at, stop = r.body_at + r.body_length, length
        if not self.unwrap or not r.sys_flag & SYS_INNER_BATCH or r.sys_flag & SYS_COMPRESSED or r.body_length == 0:
            return False
        while at < stop:
            if stop - at < BLOCK_HEAD + 2:
                return False
            length = get32(p + at + 16)
            if length < 0 or length > stop - at - BLOCK_HEAD - 2:
                return False
            at += BLOCK_HEAD + length
            length = get16(p + at)
            if length < 0 or length > stop - at - 2:
                return False
            at += 2 + length
        return True

    cdef int64_t base_of(self, const uint8_t* p, const Record* r) noexcept nogil:
        """Queue offset of the first message of an inner batch."""
        cdef Properties properties
        cdef int64_t base, count
        scan_properties(p + r.properties_at, r.properties_length, &properties)
        base = parse_number(properties.inner_base, -1)
        count = parse_number(properties.inner_num, -1)
        return base if base >= 0 and 1 <= count <= 0x7FFF else r.queue_offset

    def feed(self, const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t base_offset):
        """Rows of the records in buffer[start:end], whose byte 0 has physical offset `base_offset`, as far as one batch
        takes them; the position to go on at (`end`: all were taken in).

        The records must be whole, as a walk found them; ValueError for one that is not.
        """
        cdef int64_t at = start
        cdef int code = 0, parsed = REC_OK
        cdef Record r
        if start < 0 or start > end or end > buffer.shape[0]:
            raise ValueError("the run lies outside of the buffer")
        while at < end:
            with nogil:
                code = self.fill(&buffer[0], &at, end, base_offset, &parsed)
            if parsed != REC_OK:
                raise ValueError(f"the record at {base_offset + at} is damaged: {STOPS[parsed]}")
            if code != ASK + 16:
                break
            parse_record(&buffer[0] + at, end - at, &r)
            self.selection.ask(&buffer[0] + at, &r)
        if code != FULL_BATCH and code != ASK + 16:
            raise_for(code)
        return at

    cdef int fill(self, const uint8_t* buffer, int64_t* position, int64_t end, int64_t base_offset, int* parsed) noexcept nogil:
        cdef int64_t at = position[0], begin = position[0], base, low, high
        cdef Record r
        cdef Properties properties
        cdef int code = 0, verdict
        cdef const uint8_t* limit = buffer + end
        while at < end:
            parsed[0] = parse_record(buffer + at, end - at, &r)
            if parsed[0] != REC_OK:
                break
            verdict = self.selection.judge(buffer + at, &r, base_offset + at, &properties)
            if verdict == ASK:
                code = ASK + 16
                break
            if verdict == TAKE:
                if self.full(&r):
                    code = FULL_BATCH
                    break
                low, high = -INT64_MAX, INT64_MAX
                if self.selection.found != NULL:
                    low = max(self.selection.found.start, self.selection.found.next) if self.selection.queued else self.selection.found.start
                    high = self.selection.found.end
                if r.sys_flag & SYS_INNER_BATCH and self.is_batch(buffer + at, &r):
                    base = self.base_of(buffer + at, &r)
                    code = self.inner(buffer + at, &r, base, low, high, limit)
                    self.records += 1
                elif low <= r.queue_offset < high:
                    code = self.row(buffer + at, &r, r.queue_offset, limit)
                    self.records += 1
                if code != 0:
                    break
                if self.builder.rows == SAMPLE and self.builder.row_capacity < self.max_rows:
                    code = self.foresee()
                    if code != 0:
                        break
            at += r.size
        position[0] = at
        return code

    cdef int foresee(self) noexcept nogil:
        """Room for a whole batch of rows like the first ones."""
        cdef double rows = min(<double> self.max_rows, <double> self.max_bytes / max(1, self.weight) * SAMPLE)
        return self.builder.foresee(rows / SAMPLE)

    def feed_units(
        self, const uint8_t[::1] buffer not None, int64_t base_offset, const uint8_t[::1] units not None, Py_ssize_t first,
        Py_ssize_t last, int unit_size, str topic not None, int32_t queue_id, int64_t queue_offset, int64_t start,
        int64_t end, bint check_crc=True,
    ):
        """(unit to go on with, stop): rows of the records that units[first:last] point to in the buffer, whose byte 0
        has physical offset `base_offset`. Unit 0 has queue offset `queue_offset`; rows have offsets in [start, end)
        and the topic and queue given, which for a light queue are not the record's own.

        Every record is checked. `stop` is "end", "limit" (the batch is full), or what is wrong with the record of the
        unit, as a walk says it.
        """
        cdef Py_ssize_t at = first
        cdef const uint8_t* unit
        cdef const uint8_t* p
        cdef int64_t physical, offset
        cdef int32_t size
        cdef int code = 0, parsed = REC_OK, checks = CHECK_OFFSET | CHECK_TORN | (CHECK_CRC if check_crc else 0)
        cdef Record r
        cdef Properties properties
        cdef bytes name = topic.encode("utf-8", "replace")
        if first < 0 or last * unit_size > units.shape[0] or unit_size not in (SIMPLE_UNIT, BATCH_UNIT):
            raise ValueError("the units lie outside of the buffer")
        self.builder.topic.at = <const uint8_t*> PyBytes_AS_STRING(name)
        self.builder.topic.length = <int32_t> len(name)
        while at < last:
            with nogil:
                unit = &units[0] + at * unit_size
                physical = get64(unit)
                size = get32(unit + 8)
                offset = get64(unit + 28) if unit_size == BATCH_UNIT else queue_offset + at
                if size == BLANK_SIZE and physical == 0:
                    at += 1
                    continue
                if physical < base_offset or size <= 0 or physical - base_offset + size > buffer.shape[0]:
                    parsed = 7
                    break
                p = &buffer[0] + (physical - base_offset)
                parsed = parse_record(p, size, &r)
                if parsed == REC_OK:
                    parsed = check_record(p, &r, physical, checks)
                if parsed != REC_OK:
                    break
                r.queue_id = queue_id
                if self.selection.judge(p, &r, physical, &properties) == TAKE:
                    if self.full(&r):
                        code = FULL_BATCH
                        break
                    if r.sys_flag & SYS_INNER_BATCH and self.is_batch(p, &r):
                        code = self.inner(p, &r, offset, start, end, &buffer[0] + buffer.shape[0])
                    elif start <= offset < end:
                        code = self.row(p, &r, offset, &buffer[0] + buffer.shape[0])
                    if code != 0:
                        break
                    self.records += 1
                    if self.builder.rows == SAMPLE and self.builder.row_capacity < self.max_rows:
                        code = self.foresee()
                        if code != 0:
                            break
                at += 1
        self.builder.topic.at = NULL
        if code != FULL_BATCH:
            raise_for(code)
        return at, "limit" if code == FULL_BATCH else STOPS[parsed]

    def take(self):
        """(batch, compressed rows): the rows so far, and (row, codec) of each whose body is compressed."""
        cdef Batch batch = self.builder.finish()
        cdef list compressed = []
        cdef int64_t i
        for i in range(0, self.compressed_count, 2):
            compressed.append((self.compressed[i], self.compressed[i + 1]))
        self.compressed_count = 0
        self.weight = 0
        self.builder = Builder(self.columns, True)
        return batch, compressed


def unit_spans(const uint8_t[::1] units not None, int unit_size, int64_t gap, int64_t limit, int64_t segment):
    """[(first, last, begin, end)]: units [first, last) whose records lie in [begin, end) of the log and are worth one read.

    Records further apart than `gap`, together longer than `limit`, or in different files of `segment` bytes are read
    apart. Units that point backwards begin a span of their own.
    """
    cdef Py_ssize_t i, n = units.shape[0] // unit_size, first = 0
    cdef int64_t begin = -1, end = -1, physical
    cdef int32_t size
    cdef list spans = []
    for i in range(n):
        physical = get64(&units[0] + i * unit_size)
        size = get32(&units[0] + i * unit_size + 8)
        if size == BLANK_SIZE and physical == 0:
            continue
        if begin < 0:
            begin, end = physical, physical + max(size, 0)
        elif (
            physical < end or physical - end > gap or physical + size - begin > limit
            or physical // segment != begin // segment
        ):
            spans.append((first, i, begin, end))
            first, begin, end = i, physical, physical + max(size, 0)
        else:
            end = physical + size
    if begin >= 0:
        spans.append((first, n, begin, end))
    return spans
