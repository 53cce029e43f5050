"""Records as Arrow columns, without a Python object per row. Plain twin: format.columns.

A batch is built in plain memory and exported through the Arrow capsules (`pyarrow.record_batch(batch)`, polars, duckdb):
nothing here needs pyarrow. What a batch may take is bounded by the bytes of the records in it, never by a length that
a record claims.
"""

from cython cimport final
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from penstock._native.arrow cimport (
    NULLABLE, Field, Shared, array_capsule, drop_shared, free_field, new_shared, own_buffer, schema_capsule, set_children,
)
from penstock._native.hosttext cimport HOST_LENGTH, write_host
from penstock._native.pairs cimport Pairs, free_pairs, read_pairs, unite_pairs
from penstock._native.prefetch cimport prefetch_bytes
from penstock._native.reading cimport GetResult
from penstock._native.record cimport (
    CHECK_CRC, CHECK_OFFSET, CHECK_PROPERTY_CRC, CHECK_TORN, REC_OK, SYS_BORN_V6, SYS_STORE_V6, Record, Span,
    check_record, parse_record,
)
from penstock._native.record import STOPS
from penstock._native.rowvalues cimport add_message_id, microseconds
from penstock._native.stored cimport Slab
from penstock._native.text cimport FULL, NO_MEMORY, WIDE, Text, append, clean_text, free_text, make_room, resize

cdef enum:  # how a column lies in memory
    NUMBER
    TEXT
    OPTIONAL_TEXT
    MAP

cdef enum:
    SAMPLE = 64           # rows after which the sizes of the whole batch are guessed
    OWNED = COLUMN_COUNT * 6
    AHEAD = 8             # records that are fetched from memory while one is decoded

cdef struct Kind:
    const char* name
    const char* format
    int layout
    int width

cdef Kind KINDS[COLUMN_COUNT]
KINDS[TOPIC] = Kind(b"topic", b"u", TEXT, 0)
KINDS[QUEUE_ID] = Kind(b"queueId", b"i", NUMBER, 4)
KINDS[QUEUE_OFFSET] = Kind(b"queueOffset", b"l", NUMBER, 8)
KINDS[PHYSICAL_OFFSET] = Kind(b"physicalOffset", b"l", NUMBER, 8)
KINDS[MESSAGE_ID] = Kind(b"msgId", b"u", TEXT, 0)
KINDS[KEYS] = Kind(b"keys", b"u", OPTIONAL_TEXT, 0)
KINDS[TAGS] = Kind(b"tags", b"u", OPTIONAL_TEXT, 0)
KINDS[BODY] = Kind(b"body", b"z", TEXT, 0)
KINDS[PROPERTIES] = Kind(b"properties", b"+m", MAP, 0)
KINDS[BORN_TIMESTAMP] = Kind(b"bornTimestamp", b"tsm:UTC", NUMBER, 8)
KINDS[STORE_TIMESTAMP] = Kind(b"storeTimestamp", b"tsm:UTC", NUMBER, 8)
KINDS[BORN_HOST] = Kind(b"bornHost", b"u", TEXT, 0)
KINDS[STORE_HOST] = Kind(b"storeHost", b"u", TEXT, 0)
KINDS[SYS_FLAG] = Kind(b"sysFlag", b"i", NUMBER, 4)
KINDS[FLAG] = Kind(b"flag", b"i", NUMBER, 4)
KINDS[RECONSUME_TIMES] = Kind(b"reconsumeTimes", b"i", NUMBER, 4)
KINDS[PREPARED_OFFSET] = Kind(b"preparedTransactionOffset", b"l", NUMBER, 8)
KINDS[BODY_CRC] = Kind(b"bodyCrc", b"i", NUMBER, 4)
KINDS[SIZE] = Kind(b"size", b"i", NUMBER, 4)
KINDS[UNIQUE_KEY] = Kind(b"uniqueKey", b"u", OPTIONAL_TEXT, 0)

COLUMNS = tuple([KINDS[i].name.decode() for i in range(COLUMN_COUNT)])
"""The names of all columns, in the order of the schema."""

SPARK_COLUMNS = COLUMNS[:UNIQUE_KEY] + ("uniqKey",)
"""The same columns as Spark rows have them: times in microseconds, every field nullable."""

MAX_BATCH_BYTES = 1 << 29
"""Records of one batch add up to no more, one large record aside: malformed text grows threefold when it is replaced,
and 32-bit offsets must hold the result."""

cdef int64_t BATCH_LIMIT = MAX_BATCH_BYTES


def _mapped_addresses_are_dotted():
    """Whether this Python writes ::ffff:1.2.3.4 so; StoredMessage and the columns write the same."""
    import ipaddress

    return "." in str(ipaddress.IPv6Address("::ffff:1.2.3.4"))


cdef bint DOTTED = _mapped_addresses_are_dotted()


@final
cdef class Batch:
    """Columns of some messages. `pyarrow.record_batch(batch)` and others take it without copying, any number of times."""

    def __dealloc__(self):
        free_field(&self.root)
        drop_shared(self.shared)

    def __len__(self):
        return self.num_rows

    def __arrow_c_schema__(self):
        return schema_capsule(&self.root)

    def __arrow_c_array__(self, requested_schema=None):
        """Schema and array capsules. Another schema may be wished for; the types stay as they are."""
        return schema_capsule(&self.root), array_capsule(&self.root, self.shared)

    def __repr__(self):
        return f"<Batch {self.num_rows} rows, {len(self.column_names)} columns, {self.nbytes} bytes>"


@final
cdef class Builder:
    """Rows so far. `finish` makes a batch of them and leaves the builder empty."""

    def __cinit__(self, object columns=None, bint spark=False):
        cdef int i
        cdef tuple known = SPARK_COLUMNS if spark else COLUMNS
        cdef list names = list(known if columns is None else columns)
        self.spark = spark
        if len(set(names)) != len(names):
            raise ValueError(f"a column is asked for twice: {', '.join(names)}")
        for name in names:
            if name not in known:
                raise ValueError(f"no column {name!r}; there are {', '.join(known)}")
            i = known.index(name)
            memset(&self.columns[self.count], 0, sizeof(Column))
            self.columns[self.count].field = i
            self.count += 1
            if i == KEYS or i == TAGS or i == UNIQUE_KEY or i == PROPERTIES:
                self.want_pairs = True
        self.names = tuple(names)

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            free(self.columns[i].numbers)
            free(self.columns[i].validity)
            free_text(&self.columns[i].text)
            free_text(&self.columns[i].names)
            free_text(&self.columns[i].values)
        free_pairs(&self.pairs)
        free_text(&self.cleaned_topic)

    cdef int reserve_rows(self, int64_t rows) noexcept nogil:
        """Room for so many rows in every column, so that `add` writes numbers and offsets unchecked."""
        cdef int i, layout
        cdef Column* c
        cdef int64_t old = (self.row_capacity + 7) // 8, new = (rows + 7) // 8
        for i in range(self.count):
            c = &self.columns[i]
            layout = KINDS[c.field].layout
            if layout == NUMBER:
                if resize(<void**> &c.numbers, rows * KINDS[c.field].width) != 0:
                    return NO_MEMORY
                continue
            if resize(<void**> &c.text.offsets, (rows + 1) * sizeof(int32_t)) != 0:
                return NO_MEMORY
            if layout == OPTIONAL_TEXT:
                if resize(<void**> &c.validity, new) != 0:
                    return NO_MEMORY
                memset(c.validity + old, 0, new - old)
        self.row_capacity = rows
        return 0

    cdef int add_map(self, Column* c) noexcept nogil:
        cdef int32_t i
        cdef int64_t capacity
        cdef int code = unite_pairs(&self.pairs)
        if code != 0:
            return code
        c.text.offsets[self.rows] = <int32_t> c.pairs
        # One more than pairs: an offset follows the last.
        if c.pairs + self.pairs.count + 1 > c.pair_capacity:
            capacity = max(c.pair_capacity * 2, c.pairs + self.pairs.count + 1, 64)
            if resize(<void**> &c.names.offsets, capacity * sizeof(int32_t)) != 0:
                return NO_MEMORY
            if resize(<void**> &c.values.offsets, capacity * sizeof(int32_t)) != 0:
                return NO_MEMORY
            c.pair_capacity = capacity
        for i in range(self.pairs.count):
            if self.pairs.list[i].name.length == 0:
                continue
            c.names.offsets[c.pairs] = <int32_t> c.names.used
            c.values.offsets[c.pairs] = <int32_t> c.values.used
            code = append(&c.names, self.pairs.list[i].name.at, self.pairs.list[i].name.length, self.wide)
            if code == 0:
                code = append(&c.values, self.pairs.list[i].value.at, self.pairs.list[i].value.length, self.wide)
            if code != 0:
                return code
            c.pairs += 1
        return 0

    cdef int add_optional(self, Column* c, const Span* value) noexcept nogil:
        """The value of a property, or null: no property has an empty value."""
        if value.length == 0:
            c.nulls += 1
            return 0
        c.validity[self.rows >> 3] |= <uint8_t> (1 << (self.rows & 7))
        return append(&c.text, value.at, value.length, self.wide)

    cdef int foresee(self, double factor) noexcept nogil:
        """Room for `factor` times what there is, so that columns need not grow step by step. Costs address space only."""
        cdef int i
        cdef Column* c
        cdef Text* texts[3]
        cdef int64_t room
        cdef int k
        for i in range(self.count):
            c = &self.columns[i]
            texts[0] = &c.text
            texts[1] = &c.names
            texts[2] = &c.values
            for k in range(3):
                room = min(<int64_t> (texts[k].used * factor * 1.05), INT32_MAX)
                if room > texts[k].capacity and make_room(texts[k], room - texts[k].used) != 0:
                    return NO_MEMORY
        return self.reserve_rows(max(self.row_capacity, <int64_t> (self.rows * factor * 1.05)))

    cdef int add(self, const uint8_t* p, const Record* r, int64_t queue_offset, const uint8_t* limit) noexcept nogil:
        """One more row, of a record before `limit`, the end of what may be read. One that fails half way is not counted."""
        cdef int i, code = 0
        cdef Column* c
        cdef Span topic
        self.wide = limit - p >= r.size + WIDE
        if self.rows == self.row_capacity:
            code = self.reserve_rows(max(64, self.row_capacity * 2))
            if code != 0:
                return code
        if self.want_pairs:
            code = read_pairs(&self.pairs, p + r.properties_at, r.properties_length)
            if code != 0:
                return code
        for i in range(self.count):
            c = &self.columns[i]
            if c.text.offsets != NULL:
                c.text.offsets[self.rows] = <int32_t> c.text.used
            if c.field == TOPIC:
                if self.topic.at != NULL:
                    code = append(&c.text, self.topic.at, self.topic.length, False)
                else:
                    code = clean_text(p + r.topic_at, r.topic_length, &self.cleaned_topic, &topic)
                    if code == 0:
                        code = append(&c.text, topic.at, topic.length, self.wide)
            elif c.field == QUEUE_ID:
                (<int32_t*> c.numbers)[self.rows] = r.queue_id
            elif c.field == QUEUE_OFFSET:
                (<int64_t*> c.numbers)[self.rows] = queue_offset
            elif c.field == PHYSICAL_OFFSET:
                (<int64_t*> c.numbers)[self.rows] = r.physical_offset
            elif c.field == MESSAGE_ID:
                code = add_message_id(&c.text, p, r)
            elif c.field == KEYS:
                code = self.add_optional(c, &self.pairs.keys)
            elif c.field == TAGS:
                code = self.add_optional(c, &self.pairs.tags)
            elif c.field == BODY:
                code = append(&c.text, p + r.body_at, r.body_length, self.wide)
            elif c.field == PROPERTIES:
                code = self.add_map(c)
            elif c.field == BORN_TIMESTAMP:
                (<int64_t*> c.numbers)[self.rows] = microseconds(r.born_timestamp) if self.spark else r.born_timestamp
            elif c.field == STORE_TIMESTAMP:
                (<int64_t*> c.numbers)[self.rows] = microseconds(r.store_timestamp) if self.spark else r.store_timestamp
            elif c.field == BORN_HOST:
                code = add_host(c, p + 48, (r.sys_flag & SYS_BORN_V6) != 0)
            elif c.field == STORE_HOST:
                code = add_host(c, p + r.store_host_at, (r.sys_flag & SYS_STORE_V6) != 0)
            elif c.field == SYS_FLAG:
                (<int32_t*> c.numbers)[self.rows] = r.sys_flag
            elif c.field == FLAG:
                (<int32_t*> c.numbers)[self.rows] = r.flag
            elif c.field == RECONSUME_TIMES:
                (<int32_t*> c.numbers)[self.rows] = r.reconsume_times
            elif c.field == PREPARED_OFFSET:
                (<int64_t*> c.numbers)[self.rows] = r.prepared_offset
            elif c.field == BODY_CRC:
                (<int32_t*> c.numbers)[self.rows] = r.body_crc
            elif c.field == SIZE:
                (<int32_t*> c.numbers)[self.rows] = r.size
            else:
                code = self.add_optional(c, &self.pairs.unique_key)
            if code != 0:
                return code
        self.rows += 1
        return 0

    cdef Batch finish(self):
        """The rows as a batch that owns their memory."""
        cdef Batch batch = Batch.__new__(Batch)
        cdef int i
        cdef Column* c
        cdef Field* f
        if self.rows == self.row_capacity and self.reserve_rows(self.rows + 1) != 0:
            raise MemoryError()
        batch.shared = new_shared(OWNED)
        batch.root.name = b""
        batch.root.format = b"+s"
        batch.root.length = self.rows
        batch.root.buffer_count = 1
        if batch.shared == NULL or set_children(&batch.root, self.count) != 0:
            raise MemoryError()
        batch.num_rows = self.rows
        batch.column_names = self.names
        for i in range(self.count):
            c = &self.columns[i]
            f = &batch.root.children[i]
            f.name = KINDS[c.field].name
            f.format = KINDS[c.field].format
            f.length = self.rows
            if self.spark:
                f.flags = NULLABLE
                if c.field == UNIQUE_KEY:
                    f.name = b"uniqKey"
                elif c.field == BORN_TIMESTAMP or c.field == STORE_TIMESTAMP:
                    f.format = b"tsu:UTC"
            if KINDS[c.field].layout == NUMBER:
                f.buffer_count = 2
                f.buffers[1] = hand_over(batch.shared, <void**> &c.numbers)
                batch.nbytes += self.rows * KINDS[c.field].width
            elif KINDS[c.field].layout == MAP:
                batch.nbytes += self.finish_map(c, f, batch.shared)
            else:
                batch.nbytes += finish_text(&c.text, f, self.rows, batch.shared)
                if c.validity != NULL:
                    f.flags = NULLABLE
                    f.nulls = c.nulls
                    batch.nbytes += (self.rows + 7) // 8 if c.nulls else 0
                    f.buffers[0] = hand_over(batch.shared, <void**> &c.validity)
            memset(c, 0, sizeof(Column))
        self.rows = self.row_capacity = 0
        self.count = 0
        return batch

    cdef int64_t finish_map(self, Column* c, Field* f, Shared* shared) except -1:
        cdef Field* entries
        cdef int64_t size = (self.rows + 1) * <int64_t> sizeof(int32_t)
        if c.pair_capacity == 0:  # no row at all
            if resize(<void**> &c.names.offsets, sizeof(int32_t)) != 0:
                raise MemoryError()
            if resize(<void**> &c.values.offsets, sizeof(int32_t)) != 0:
                raise MemoryError()
        c.text.offsets[self.rows] = <int32_t> c.pairs
        f.buffer_count = 2
        f.buffers[1] = hand_over(shared, <void**> &c.text.offsets)
        if set_children(f, 1) != 0 or set_children(&f.children[0], 2) != 0:
            raise MemoryError()
        entries = &f.children[0]
        entries.name = b"entries"
        entries.format = b"+s"
        entries.length = c.pairs
        entries.buffer_count = 1
        entries.children[0].name = b"key"
        entries.children[1].name = b"value"
        entries.children[0].format = entries.children[1].format = b"u"
        entries.children[0].length = entries.children[1].length = c.pairs
        entries.children[1].flags = NULLABLE  # never null, but that is what a map of strings is elsewhere
        size += finish_text(&c.names, &entries.children[0], c.pairs, shared)
        return size + finish_text(&c.values, &entries.children[1], c.pairs, shared)


cdef void* hand_over(Shared* shared, void** buffer) noexcept nogil:
    cdef void* taken = buffer[0]
    buffer[0] = NULL
    own_buffer(shared, taken)
    return taken


cdef int64_t finish_text(Text* text, Field* f, int64_t rows, Shared* shared) except -1:
    """Offsets and bytes of a text column into its field; the bytes it has."""
    if text.data == NULL and make_room(text, 1) != 0:
        raise MemoryError()
    text.offsets[rows] = <int32_t> text.used
    f.buffer_count = 3
    f.buffers[1] = hand_over(shared, <void**> &text.offsets)
    f.buffers[2] = hand_over(shared, <void**> &text.data)
    return text.used + (rows + 1) * <int64_t> sizeof(int32_t)


cdef int add_host(Column* c, const uint8_t* p, bint v6) noexcept nogil:
    cdef int size = 20 if v6 else 8
    if size != c.host_size or memcmp(p, c.host, size) != 0:
        memcpy(c.host, p, size)
        c.host_size = size
        c.host_length = write_host(p, v6, DOTTED, c.host_text)
    return append(&c.text, <const uint8_t*> c.host_text, c.host_length, True)


def decode_result(GetResult result not None, object columns=None):
    """The messages of a get as a batch; `columns`: the names wanted, in their order, None for all.

    A record that holds an inner batch is one row. ValueError for an unknown name or a damaged record.
    """
    cdef Builder builder = Builder(columns)
    cdef Py_ssize_t i = 0, n = len(result.slabs)
    cdef const uint8_t** bases = <const uint8_t**> malloc((2 * n + 1) * sizeof(void*))
    cdef const uint8_t* p
    cdef const uint8_t* ahead
    cdef Record r
    cdef int64_t total = 0
    cdef int code = 0, parsed = REC_OK
    if bases == NULL:
        raise MemoryError()
    try:
        for i in range(n):
            bases[2 * i] = (<Slab> result.slabs[i]).base
            bases[2 * i + 1] = bases[2 * i] + (<Slab> result.slabs[i]).length
        i = 0
        with nogil:
            code = builder.reserve_rows(result.count + 1)
            while i < result.count and code == 0:
                if i + AHEAD < result.count:
                    ahead = bases[2 * result.places[i + AHEAD].slab] + result.places[i + AHEAD].position
                    prefetch_bytes(ahead, result.places[i + AHEAD].size)
                p = bases[2 * result.places[i].slab] + result.places[i].position
                parsed = parse_record(p, result.places[i].size, &r)
                if parsed != REC_OK:
                    break
                total += r.size
                if total > BATCH_LIMIT and i > 0:
                    code = FULL
                    break
                code = builder.add(p, &r, result.places[i].queue_offset, bases[2 * result.places[i].slab + 1])
                i += 1
                if builder.rows == SAMPLE and code == 0:
                    code = builder.foresee(<double> result.buffer_size / total)
    finally:
        free(bases)
    if parsed != REC_OK:
        raise ValueError(f"the record at queue offset {result.places[i].queue_offset} is damaged: {STOPS[parsed]}")
    raise_for(code)
    return builder.finish()


def decode_log(
    const uint8_t[::1] buffer not None,
    int64_t start,
    int64_t end,
    int64_t base_offset,
    *,
    object columns=None,
    int64_t max_rows=65536,
    int64_t max_bytes=64 << 20,
    bint check_crc=True,
    bint check_offset=True,
    bint check_property_crc=False,
    bint check_torn=False,
):
    """(batch, end position, stop): the records of buffer[start:end], whose byte 0 has physical offset `base_offset`.

    `stop` is the walk's ("end", "blank", "crc", ...), or "limit" after `max_rows` rows or before the record that would
    exceed `max_bytes` of records; then go on at the end position. The first record is taken whatever its size.
    """
    cdef Builder builder = Builder(columns)
    cdef Record r
    cdef int64_t at = start
    cdef int code = REC_OK, failed = 0
    cdef bint limited = False
    cdef int checks = (
        (CHECK_CRC if check_crc else 0) | (CHECK_OFFSET if check_offset else 0)
        | (CHECK_PROPERTY_CRC if check_property_crc else 0) | (CHECK_TORN if check_torn else 0)
    )
    if start < 0 or start > end or end > buffer.shape[0]:
        raise ValueError("the run lies outside of the buffer")
    if max_rows < 1 or max_bytes < 1:
        raise ValueError("a batch has at least one row")
    max_bytes = min(max_bytes, BATCH_LIMIT)
    with nogil:
        while at < end:
            if builder.rows == max_rows:
                limited = True
                break
            code = parse_record(&buffer[0] + at, end - at, &r)
            if code == REC_OK and builder.rows and at - start + r.size > max_bytes:
                limited = True
                break
            if code == REC_OK:
                code = check_record(&buffer[0] + at, &r, base_offset + at, checks)
            if code != REC_OK:
                break
            failed = builder.add(&buffer[0] + at, &r, r.queue_offset, &buffer[0] + end)
            at += r.size
            if builder.rows == SAMPLE and failed == 0:
                failed = builder.foresee(
                    min(<double> min(end - start, max_bytes) / (at - start), <double> max_rows / SAMPLE)
                )
            if failed != 0:
                break
    raise_for(failed)
    return builder.finish(), at, "limit" if limited else STOPS[code]


cdef int raise_for(int code) except -1:
    if code == NO_MEMORY:
        raise MemoryError()
    if code != 0:
        raise ValueError("the messages are too large for one batch; ask for fewer")
    return 0
