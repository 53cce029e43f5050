"""Rows become records in bulk, whole but for queue offset, physical offset and store time. Plain twin: format.staged.

The columns are read where Arrow keeps them; no Python object is made per row. A row that needs judgement (a queue seen
for the first time, a delivery that is to happen later) stops the run, and the caller helps.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock._native.arrow cimport ArrowArray, ArrowSchema
from penstock._native.arrowin cimport (
    INT64, MAP, NOTHING, TEXT, LARGE_TEXT, Column, is_null, number_at, take_column, text_at,
)
from penstock._native.encode import month_of
from penstock._native.encode cimport plain, put_pair
from penstock._native.endian cimport put16, put32, put64
from penstock._native.index cimport key_hashes
from penstock._native.record cimport (
    MAGIC_V1, MAGIC_V2, PROPERTIES_LIMIT, SYS_BORN_V6, SYS_STORE_V6, Span, hash_text, penstock_crc32, penstock_crc_setup,
)
from penstock._native.stagedrow cimport (
    C_BODY, C_BORN, C_DELAY, C_DELIVER_AT, C_FLAG, C_KEYS, C_ORDER_KEY, C_PROPERTIES, C_QUEUE_ID, C_SYS_FLAG, C_TAGS, C_TOPIC,
    C_UNIQUE_KEY, COLUMN_COUNT, KEPT_FLAGS, MAX_QUEUE, S_BAD_QUEUE, S_DONE, S_LONG_BODY, S_LONG_PROPERTIES, S_LONG_RECORD,
    S_NEED_QUEUE, S_NO_MEMORY, S_NO_TOPIC, S_SEPARATOR, S_SPECIAL, asks_for_more, named, never_stored,
)
from penstock._native.topicslots cimport TopicSlots, find_slot, free_topics, make_slot

penstock_crc_setup()

COLUMNS = (
    "topic", "body", "keys", "tags", "properties", "queueId", "orderKey", "uniqKey", "flag", "sysFlag", "bornTimestamp", "delay",
    "deliverAt",
)

DONE, NEED_QUEUE, SPECIAL, NO_TOPIC, LONG_BODY, LONG_PROPERTIES, LONG_RECORD, SEPARATOR, BAD_QUEUE, NO_MEMORY = range(10)

cdef enum:
    NOTED_KEYS = 16                    # a record with more of them has to be looked at

cdef const char* HEX = b"0123456789ABCDEF"


cdef class RecordEncoder:
    """Encodes batches of rows, one after the other, into a buffer that is taken out when it is long enough."""

    cdef Column columns[COLUMN_COUNT]
    cdef Column names
    cdef Column values
    cdef object schema_capsule
    cdef object array_capsule
    cdef int64_t rows
    cdef readonly int64_t row          # of the batch: the next one
    cdef TopicSlots topics
    cdef readonly list queues          # (topic, queue id) by slot
    cdef bytes default_topic           # kept for `topic`, which points into it
    cdef Span topic                    # of rows that name none
    cdef uint8_t host[20]
    cdef int32_t host_length
    cdef int64_t max_body
    cdef int64_t max_record
    cdef int32_t queue_count
    cdef int32_t next_queue
    cdef Span wanted_topic
    cdef int64_t wanted_queue
    cdef uint8_t unique[32]
    cdef int64_t unique_ms
    cdef int64_t month_start
    cdef int64_t month_end
    cdef int32_t unique_used
    cdef uint8_t* data
    cdef int64_t used
    cdef int64_t capacity
    cdef int32_t* slots
    cdef int32_t count
    cdef int32_t slot_capacity
    cdef uint32_t* prefixes            # hashes of `<topic>#` by slot
    cdef public bint noted             # whether `notes` are taken
    cdef int32_t* note                 # what `notes` shows
    cdef int64_t note_count
    cdef int64_t note_capacity

    def __cinit__(
        self, bytes host not None, int64_t max_body, int64_t max_record, bytes unique_prefix not None, int32_t queue_count,
        int32_t first_queue=0, bytes default_topic=None,
    ):
        """`unique_prefix`: 10 bytes that no other encoder has. Rows that name no queue go round `queue_count` of them."""
        if len(unique_prefix) != 10 or len(host) not in (8, 20) or queue_count < 1 or queue_count > MAX_QUEUE:
            raise ValueError("a prefix has 10 bytes, a host 8 or 20, and there is at least one queue")
        memcpy(self.host, PyBytes_AS_STRING(host), len(host))
        self.host_length = <int32_t> len(host)
        self.max_body = max_body
        self.max_record = max_record
        self.queue_count = queue_count
        self.next_queue = first_queue % queue_count
        self.default_topic = default_topic
        self.topic.length = -1
        if default_topic is not None:
            self.topic.at = <const uint8_t*> PyBytes_AS_STRING(default_topic)
            self.topic.length = <int32_t> len(default_topic)
        self.queues = []
        self.topics.last = -1
        prefix = unique_prefix.hex().upper().encode()
        memcpy(self.unique, PyBytes_AS_STRING(prefix), 20)

    def __dealloc__(self):
        free_topics(&self.topics)
        free(self.data)
        free(self.slots)
        free(self.prefixes)
        free(self.note)

    # -- a batch -----------------------------------------------------------------------------------------------

    def begin(self, object batch not None, object names not None):
        """Take rows: whatever has `__arrow_c_array__`; `names[i]` is what its i-th column is to us, None to leave it out."""
        cdef ArrowSchema* schema
        cdef ArrowArray* array
        cdef int64_t i
        cdef int place
        cdef Column* column
        schema_capsule, array_capsule = batch.__arrow_c_array__()
        schema = <ArrowSchema*> PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        array = <ArrowArray*> PyCapsule_GetPointer(array_capsule, "arrow_array")
        if array.n_children != len(names):
            raise ValueError(f"{array.n_children} columns, {len(names)} names")
        for place in range(COLUMN_COUNT):
            self.columns[place].kind = NOTHING
        for i in range(array.n_children):
            if names[i] is None:
                continue
            place = COLUMNS.index(names[i])
            column = &self.columns[place]
            take_column(column, schema.children[i], array.children[i])
            if column.kind == NOTHING or (place == C_PROPERTIES) != (column.kind == MAP) \
                    or (place in (C_TOPIC, C_BODY, C_KEYS, C_TAGS, C_ORDER_KEY, C_UNIQUE_KEY)) != (column.kind in (TEXT, LARGE_TEXT)):
                raise TypeError(f"column {names[i]}: Arrow type {schema.children[i].format.decode()!r}")
            if column.kind == MAP:
                self.take_map(schema.children[i], array.children[i])
        self.schema_capsule = schema_capsule
        self.array_capsule = array_capsule
        self.rows = array.length
        self.row = 0

    cdef int take_map(self, ArrowSchema* schema, ArrowArray* array) except -1:
        cdef ArrowSchema* pair = schema.children[0]
        cdef ArrowArray* pairs = array.children[0]
        take_column(&self.names, pair.children[0], pairs.children[0])
        take_column(&self.values, pair.children[1], pairs.children[1])
        if self.names.kind not in (TEXT, LARGE_TEXT) or self.values.kind not in (TEXT, LARGE_TEXT):
            raise TypeError("properties: a map from text to text is needed")
        self.names.offset += pairs.offset
        self.values.offset += pairs.offset
        return 0

    def run(self, int64_t now):
        """Encode rows up to the end of the batch; DONE, or why it stopped at `row`."""
        cdef int code = S_DONE
        if now >= self.month_end or now < self.month_start:
            self.month_start, self.month_end = month_of(now)
        if now > self.unique_ms:
            self.unique_ms = now
            self.unique_used = 0
            self.put_moment()
        with nogil:
            while self.row < self.rows:
                code = self.encode_row(self.row, now)
                if code != S_DONE:
                    break
                self.row += 1
        if code == S_DONE:
            self.schema_capsule = self.array_capsule = None
        elif code == S_NO_MEMORY:
            raise MemoryError()
        return code

    @property
    def wanted(self):
        """Topic and queue id that stopped the run: give the queue with `add_queue` if it may be written to."""
        return PyBytes_FromStringAndSize(<const char*> self.wanted_topic.at, self.wanted_topic.length), self.wanted_queue

    def add_queue(self, bytes topic not None, int32_t queue_id):
        """Know a queue from now on; its slot."""
        cdef int32_t* slot
        cdef uint32_t* grown
        cdef Span name
        if queue_id < 0 or queue_id >= MAX_QUEUE:
            raise ValueError(f"queue id {queue_id}")
        name.at = <const uint8_t*> PyBytes_AS_STRING(topic)
        name.length = <int32_t> len(topic)
        slot = make_slot(&self.topics, name, queue_id)
        if slot == NULL:
            raise MemoryError()
        if slot[0] < 0:
            grown = <uint32_t*> realloc(self.prefixes, (len(self.queues) + 1) * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError()
            self.prefixes = grown
            self.prefixes[len(self.queues)] = hash_text(hash_text(0, name.at, name.length), b"#", 1)
            self.queues.append((topic.decode(), queue_id))
            slot[0] = <int32_t> len(self.queues) - 1
        return slot[0]

    def add_record(self, bytes record not None, int32_t slot):
        """The record of the row that stopped the run, made elsewhere: the run goes on behind it."""
        if slot < 0 or slot >= len(self.queues):
            raise ValueError(f"slot {slot}")
        if self.reserve(len(record)) != 0:
            raise MemoryError()
        memcpy(self.data + self.used, PyBytes_AS_STRING(record), len(record))
        self.slots[self.count] = slot
        self.take_note(0, -1)
        self.used += len(record)
        self.count += 1
        self.row += 1

    def choose(self):
        """The queue of the row that stopped the run; rows that name none have the next one in turn."""
        cdef int64_t queue_id
        cdef bint round_robin
        if self.row >= self.rows or self.choose_queue(self.row, &queue_id, &round_robin) != S_DONE:
            raise ValueError(f"row {self.row} names no queue that there can be")
        if round_robin:
            self.next_queue = (self.next_queue + 1) % self.queue_count
        return queue_id

    def unique_key(self):
        """A unique id of this encoder's, as it gives one to a row that has none."""
        self.next_unique()
        return (<const char*> self.unique)[:32].decode()

    @property
    def size(self):
        """Bytes of records that wait to be taken."""
        return self.used

    def peek(self):
        """Slots (32-bit numbers of this machine) and bytes of the records that wait, where they lie: good until `clear`."""
        if self.count == 0:
            return memoryview(b""), memoryview(b"")
        return (
            PyMemoryView_FromMemory(<char*> self.slots, self.count * 4, PyBUF_READ),
            PyMemoryView_FromMemory(<char*> self.data, self.used, PyBUF_READ),
        )

    @property
    def notes(self):
        """What the dispatcher will ask of the records that wait, for `Prepared.add`: good until `clear`.

        32-bit numbers of this machine: of each record the hash of its tags, how many keys it has, and their hashes; -1 keys
        of one that has to be looked at, and of all if not `noted`.
        """
        return PyMemoryView_FromMemory(<char*> self.note, self.note_count * 4, PyBUF_READ) if self.note_count else memoryview(b"")

    def clear(self):
        """Forget the records that wait."""
        self.note_count = 0
        self.used = 0
        self.count = 0

    # -- unique ids --------------------------------------------------------------------------------------------

    cdef void put_moment(self) noexcept nogil:
        cdef uint32_t since = <uint32_t> (self.unique_ms - self.month_start)
        cdef int i
        for i in range(8):
            self.unique[27 - i] = HEX[since & 15]
            since >>= 4

    cdef void next_unique(self) noexcept nogil:
        """Advance the id in place. A counter that ran out moves the time on: ids must differ, clocks may wait."""
        cdef uint32_t number
        cdef int i
        if self.unique_used == 0x10000:
            self.unique_ms += 1
            self.unique_used = 0
            self.put_moment()
        number = <uint32_t> self.unique_used
        self.unique_used += 1
        for i in range(4):
            self.unique[31 - i] = HEX[number & 15]
            number >>= 4

    # -- one row -----------------------------------------------------------------------------------------------

    cdef int reserve(self, int64_t more) noexcept nogil:
        cdef int64_t capacity
        cdef void* grown
        if self.used + more > self.capacity:
            capacity = max(self.capacity * 2, self.used + more, 1 << 20)
            grown = realloc(self.data, capacity)
            if grown == NULL:
                return -1
            self.data = <uint8_t*> grown
            self.capacity = capacity
        if self.count == self.slot_capacity:
            grown = realloc(self.slots, max(4096, self.slot_capacity * 2) * sizeof(int32_t))
            if grown == NULL:
                return -1
            self.slots = <int32_t*> grown
            self.slot_capacity = max(4096, self.slot_capacity * 2)
        if self.note_count + 2 + NOTED_KEYS > self.note_capacity:
            grown = realloc(self.note, max(16384, self.note_capacity * 2) * sizeof(int32_t))
            if grown == NULL:
                return -1
            self.note = <int32_t*> grown
            self.note_capacity = max(16384, self.note_capacity * 2)
        return 0

    cdef inline void take_note(self, uint32_t tags, int32_t keys) noexcept nogil:
        """Note a record whose hashes, if any, stand in their place already."""
        self.note[self.note_count] = <int32_t> tags
        self.note[self.note_count + 1] = keys
        self.note_count += 2 + (keys if keys > 0 else 0)

    cdef int choose_queue(self, int64_t row, int64_t* queue_id, bint* round_robin) noexcept nogil:
        """The queue a row names, the one its order key has, or the next one in turn."""
        cdef Span key
        cdef int32_t h
        round_robin[0] = False
        if not is_null(&self.columns[C_QUEUE_ID], row):
            queue_id[0] = number_at(&self.columns[C_QUEUE_ID], row)
            return S_DONE if 0 <= queue_id[0] < MAX_QUEUE else S_BAD_QUEUE
        if not is_null(&self.columns[C_ORDER_KEY], row):
            key = text_at(&self.columns[C_ORDER_KEY], row)
            h = <int32_t> hash_text(0, key.at, key.length) % self.queue_count
            queue_id[0] = -h if h < 0 else h
            return S_DONE
        round_robin[0] = True
        queue_id[0] = self.next_queue
        return S_DONE

    cdef int measure(self, int64_t row, bint keys, bint tags, bint unique, bint* has_unique, int64_t* length) noexcept nogil:
        """Bytes that the map of properties takes beside the columns that win over it."""
        cdef int64_t begin, end, i
        cdef Span name, value
        if is_null(&self.columns[C_PROPERTIES], row):
            return S_DONE
        i = self.columns[C_PROPERTIES].offset + row
        begin = (<const int32_t*> self.columns[C_PROPERTIES].offsets)[i]
        end = (<const int32_t*> self.columns[C_PROPERTIES].offsets)[i + 1]
        for i in range(begin, end):
            name = text_at(&self.names, i)
            if asks_for_more(name):
                return S_SPECIAL
            if self.hidden(name, i, keys, tags, unique):
                continue
            value = text_at(&self.values, i)
            if named(name, b"UNIQ_KEY", 8):
                has_unique[0] = True
            if not plain(name.at, name.length) or not plain(value.at, value.length):
                return S_SEPARATOR
            length[0] += <int64_t> name.length + value.length + 2
        return S_DONE

    cdef inline bint hidden(self, Span name, int64_t i, bint keys, bint tags, bint unique) noexcept nogil:
        return (
            is_null(&self.values, i) or (keys and named(name, b"KEYS", 4)) or (tags and named(name, b"TAGS", 4))
            or (unique and named(name, b"UNIQ_KEY", 8)) or never_stored(name)
        )

    cdef int encode_row(self, int64_t row, int64_t now) noexcept nogil:
        cdef Span topic, body, keys, tags, unique, name, value
        cdef bint has_keys, has_tags, has_unique, given_unique = False, round_robin
        cdef int64_t queue_id, length = 0, total, born, i, begin, end
        cdef int32_t slot, host_length = self.host_length, sys_flag = 0
        cdef int code
        cdef uint8_t* p
        if not is_null(&self.columns[C_DELIVER_AT], row):
            return S_SPECIAL
        if not is_null(&self.columns[C_DELAY], row) and number_at(&self.columns[C_DELAY], row) != 0:
            return S_SPECIAL
        if not is_null(&self.columns[C_TOPIC], row):
            topic = text_at(&self.columns[C_TOPIC], row)
        elif self.topic.length >= 0:
            topic = self.topic
        else:
            return S_NO_TOPIC
        body.at = NULL
        body.length = 0
        if not is_null(&self.columns[C_BODY], row):
            body = text_at(&self.columns[C_BODY], row)
        if body.length > self.max_body:
            return S_LONG_BODY
        has_keys = not is_null(&self.columns[C_KEYS], row)
        has_tags = not is_null(&self.columns[C_TAGS], row)
        has_unique = not is_null(&self.columns[C_UNIQUE_KEY], row)
        keys.at = tags.at = unique.at = NULL
        keys.length = tags.length = unique.length = 0
        if has_keys:
            keys = text_at(&self.columns[C_KEYS], row)
        if has_tags:
            tags = text_at(&self.columns[C_TAGS], row)
        if has_unique:
            unique = text_at(&self.columns[C_UNIQUE_KEY], row)
        if not plain(keys.at, keys.length) or not plain(tags.at, tags.length) or not plain(unique.at, unique.length):
            return S_SEPARATOR
        code = self.measure(row, has_keys, has_tags, has_unique, &given_unique, &length)
        if code != S_DONE:
            return code
        code = self.choose_queue(row, &queue_id, &round_robin)
        if code != S_DONE:
            return code
        slot = find_slot(&self.topics, topic, queue_id)
        if slot < 0:
            self.wanted_topic = topic
            self.wanted_queue = queue_id
            return S_NEED_QUEUE
        length += 6 + <int64_t> keys.length if keys.length else 0
        length += 6 + <int64_t> tags.length if tags.length else 0
        if has_unique:
            length += 10 + <int64_t> unique.length if unique.length else 0
        elif not given_unique:
            length += 42
        if length > PROPERTIES_LIMIT:
            return S_LONG_PROPERTIES
        total = 72 + 2 * host_length + (3 if topic.length < 128 else 4) + topic.length + <int64_t> body.length + length
        if total > self.max_record:
            return S_LONG_RECORD
        if self.reserve(total) != 0:
            return S_NO_MEMORY
        if not is_null(&self.columns[C_SYS_FLAG], row):
            sys_flag = <int32_t> number_at(&self.columns[C_SYS_FLAG], row) & KEPT_FLAGS
        if host_length == 20:
            sys_flag |= SYS_BORN_V6 | SYS_STORE_V6
        born = now
        if not is_null(&self.columns[C_BORN], row):
            born = number_at(&self.columns[C_BORN], row)
            i = born % 1000
            born = (born - (i + 1000 if i < 0 else i)) // 1000
        p = self.data + self.used
        put32(p, <int32_t> total)
        put32(p + 4, MAGIC_V1 if topic.length < 128 else MAGIC_V2)
        put32(p + 8, <int32_t> (penstock_crc32(body.at, body.length) & 0x7FFFFFFF) if body.length else 0)
        put32(p + 12, <int32_t> queue_id)
        put32(p + 16, 0 if is_null(&self.columns[C_FLAG], row) else <int32_t> number_at(&self.columns[C_FLAG], row))
        put64(p + 20, 0)
        put64(p + 28, 0)
        put32(p + 36, sys_flag)
        put64(p + 40, born)
        memcpy(p + 48, self.host, host_length)
        p += 48 + host_length
        put64(p, 0)
        memcpy(p + 8, self.host, host_length)
        p += 8 + host_length
        put32(p, 0)
        put64(p + 4, 0)
        put32(p + 12, body.length)
        p += 16
        memcpy(p, body.at, body.length)
        p += body.length
        if topic.length < 128:
            p[0] = <uint8_t> topic.length
            p += 1
        else:
            put16(p, <int16_t> topic.length)
            p += 2
        memcpy(p, topic.at, topic.length)
        p += topic.length
        put16(p, <int16_t> length)
        p += 2
        if keys.length:
            p = put_pair(p, b"KEYS", 4, <const char*> keys.at, keys.length)
        if tags.length:
            p = put_pair(p, b"TAGS", 4, <const char*> tags.at, tags.length)
        if not has_unique and not given_unique:
            self.next_unique()
            unique.at = self.unique
            unique.length = 32
        if unique.length:
            p = put_pair(p, b"UNIQ_KEY", 8, <const char*> unique.at, unique.length)
        if not is_null(&self.columns[C_PROPERTIES], row):
            i = self.columns[C_PROPERTIES].offset + row
            begin = (<const int32_t*> self.columns[C_PROPERTIES].offsets)[i]
            end = (<const int32_t*> self.columns[C_PROPERTIES].offsets)[i + 1]
            for i in range(begin, end):
                name = text_at(&self.names, i)
                if not self.hidden(name, i, has_keys, has_tags, has_unique):
                    value = text_at(&self.values, i)
                    p = put_pair(p, <const char*> name.at, name.length, <const char*> value.at, value.length)
        if self.noted and is_null(&self.columns[C_PROPERTIES], row):
            self.take_note(
                hash_text(0, tags.at, tags.length),
                key_hashes(self.prefixes[slot], unique, keys, tags, self.note + self.note_count + 2, NOTED_KEYS),
            )
        else:
            self.take_note(0, -1)
        self.slots[self.count] = slot
        self.used += total
        self.count += 1
        if round_robin:
            self.next_queue = (self.next_queue + 1) % self.queue_count
        return S_DONE
