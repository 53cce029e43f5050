"""What the dispatcher will make of records, worked out before they may be seen. Plain twin: format.dispatch.

Finished records are appended in bulk, and so are clients' batches. Their units and keys are known as soon as they have
their places: to parse them, to look for properties and to hash keys need not wait until the records become visible, nor
read them from the log again. Nothing of it reaches a file before `run`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock._native.batchbody cimport next_item
from penstock._native.dispatch cimport C_BLANK, C_DONE, C_INDEX_FULL, WAITING, Dispatch
from penstock._native.encode cimport Encoded
from penstock._native.encode cimport Item as BatchItem
from penstock._native.endian cimport get32, get64
from penstock._native.index cimport Index, index_put, index_store_header, key_hashes
from penstock._native.prefetch cimport prefetch_write
from penstock._native.putresult cimport PutResults
from penstock._native.queue cimport Queue, QueueState
from penstock._native.record cimport (
    REC_OK, SYS_BORN_V6, SYS_INNER_BATCH, SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION, Properties, Record, parse_record,
    scan_properties,
)

cdef enum:
    MOST_KEYS = WAITING // 2     # of one record: all of its entries wait at once
    AHEAD = 32                   # entries between the one whose slot is fetched and the one that is put
    P_DONE = 0
    P_ENDED = 1
    P_BAD = 2
    P_NO_MEMORY = 3

cdef struct Item:
    QueueState* queue
    int64_t offset
    int64_t queue_offset
    int64_t tags
    int64_t timestamp
    int32_t size
    int32_t keys                 # how many hashes belong to it


cdef class Prepared:
    """Units and keys of records in the order of the log. One caller at a time.

    At most `limit` records are taken in, which bounds its memory (about 60 bytes each), and none behind one that only
    Python can dispatch: what is left, the dispatcher reads from the log.
    """

    cdef Item* items
    cdef int64_t count
    cdef int64_t capacity
    cdef int32_t* hashes
    cdef int64_t hash_count
    cdef int64_t hash_capacity
    cdef int64_t next            # the next item to dispatch, and its first hash
    cdef int64_t next_hash
    cdef readonly int64_t limit
    cdef readonly bint ended     # it takes in nothing more
    cdef bint running            # a run is under way, perhaps without the interpreter lock
    cdef readonly list queues    # those of the records: keeps their states alive
    cdef set known

    def __cinit__(self, int64_t limit=2_000_000):
        self.limit = limit
        self.queues = []
        self.known = set()

    def __dealloc__(self):
        free(self.items)
        free(self.hashes)

    def __len__(self):
        """Records that were taken in."""
        return self.count

    def add(
        self, Dispatch dispatch not None, const uint8_t[::1] records not None, const int32_t[::1] slots not None,
        list queues not None, const int32_t[::1] notes=None,
    ):
        """Take in records as an append left them: whole, with their places. Record i belongs to `queues[slots[i]]`.

        `notes`, from whoever made the records, spares looking at their properties: see `RecordEncoder.notes`.
        """
        cdef Record r
        cdef int64_t at = 0, size = records.shape[0], note = 0, note_count = 0 if notes is None else notes.shape[0]
        cdef bint noted = notes is not None
        cdef QueueState* q
        cdef Py_ssize_t i
        cdef int code = P_DONE
        if self.ended or self.running:
            return
        for given in queues:
            self.know(<Queue?> given)
        cdef const QueueState** states = <const QueueState**> realloc(NULL, (len(queues) + 1) * sizeof(QueueState*))
        if states == NULL:
            raise MemoryError()
        for i in range(len(queues)):
            states[i] = (<Queue> queues[i]).state
        cdef int64_t most = len(queues)
        with nogil:
            for i in range(slots.shape[0]):
                code = P_BAD
                if at >= size or slots[i] < 0 or slots[i] >= most:
                    break
                q = <QueueState*> states[slots[i]]
                if noted and (note + 2 > note_count or notes[note + 1] > min(MOST_KEYS, note_count - note - 2)):
                    break
                if noted and notes[note + 1] >= 0:
                    code = self.take_noted(&records[0] + at, size - at, q, &notes[note], &r)
                elif parse_record(&records[0] + at, size - at, &r) == REC_OK:
                    code = self.take(dispatch, &records[0] + at + r.topic_at, &records[0] + at + r.properties_at, &r, q)
                if code != P_DONE:
                    break
                if noted:
                    note += 2 + max(notes[note + 1], 0)
                at += r.size
        free(states)
        if code == P_NO_MEMORY:
            raise MemoryError()
        if code == P_BAD:
            raise ValueError(f"no record with a queue at byte {at}")
        self.ended = code == P_ENDED

    def add_batch(self, Dispatch dispatch not None, PutResults results not None, int32_t sys_flag, object body not None):
        """As `add`, for a client's batch that was appended whole: what its records hold is in the bytes of its body.

        Nothing while a run is under way: what is missing, the dispatcher reads from the log.
        """
        cdef Py_buffer view
        cdef BatchItem item
        cdef Encoded* e
        cdef Record r
        cdef int64_t at = 0
        cdef int code
        cdef Py_ssize_t i
        if self.ended or self.running or results.failures is not None or results.appended_count != results.count:
            return
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            for i in range(results.count):
                e = &results.records[i]
                if not next_item(<const uint8_t*> view.buf, &at, view.len, &item):
                    raise ValueError(f"{results.count} results for a batch of {i}")
                if i == 0:
                    self.know(<Queue> <object> <PyObject*> e.queue.owner)
                r.sys_flag = sys_flag
                r.size = e.size
                r.topic_length = e.queue.topic_length
                r.properties_length = <int32_t> item.properties_length
                r.physical_offset = e.physical_offset
                r.queue_offset = e.queue_offset
                r.store_timestamp = e.store_timestamp
                code = self.take(dispatch, e.queue.topic, item.properties, &r, e.queue)
                if code == P_NO_MEMORY:
                    raise MemoryError()
                if code == P_ENDED:
                    self.ended = True
                    break
        finally:
            PyBuffer_Release(&view)

    cdef int know(self, Queue queue) except -1:
        """Keep a queue whose state is used."""
        if queue not in self.known:
            self.known.add(queue)
            self.queues.append(queue)
        return 0

    def clear(self):
        """Forget everything; its memory is used again."""
        if self.running:
            raise ValueError("a run is under way")
        self.count = self.hash_count = self.next = self.next_hash = 0
        self.ended = False
        self.queues.clear()
        self.known.clear()

    @property
    def left(self):
        """Records that were taken in and not dispatched yet."""
        return self.count - self.next

    cdef int take(self, Dispatch dispatch, const uint8_t* topic, const uint8_t* text, const Record* r, QueueState* q) noexcept nogil:
        """Take in a record by its topic and its property string."""
        cdef Properties properties
        cdef Item* item
        cdef int kind = r.sys_flag & SYS_TRANSACTION
        cdef int32_t keys
        scan_properties(text, r.properties_length, &properties)
        if self.count >= self.limit or kind == SYS_PREPARED or kind == SYS_ROLLBACK or dispatch.is_special(q, r, &properties):
            return P_ENDED
        if self.reserve() != 0:
            return P_NO_MEMORY
        keys = key_hashes(
            q.key_prefix_hash, properties.unique_key, properties.keys, properties.tags, self.hashes + self.hash_count, MOST_KEYS
        )
        if keys < 0:
            return P_ENDED
        item = &self.items[self.count]
        item.queue = q
        item.offset = r.physical_offset
        item.queue_offset = r.queue_offset
        item.tags = dispatch.tags_code(topic, r, &properties)
        item.timestamp = r.store_timestamp
        item.size = r.size
        item.keys = keys
        self.hash_count += keys
        self.count += 1
        return P_DONE

    cdef int take_noted(self, const uint8_t* p, int64_t available, QueueState* q, const int32_t* note, Record* r) noexcept nogil:
        """Take in a record of which somebody else has looked at the properties; fills in its size."""
        cdef Item* item
        r.size = get32(p) if available >= 91 else 0
        if r.size < 91 or r.size > available:
            return P_BAD
        r.sys_flag = get32(p + 36)
        if self.count >= self.limit or q.special or r.sys_flag & (SYS_TRANSACTION | SYS_INNER_BATCH):
            return P_ENDED
        if self.reserve() != 0:
            return P_NO_MEMORY
        item = &self.items[self.count]
        item.queue = q
        item.offset = get64(p + 28)
        item.queue_offset = get64(p + 20)
        item.tags = note[0]
        item.timestamp = get64(p + (68 if r.sys_flag & SYS_BORN_V6 else 56))
        item.size = r.size
        item.keys = note[1]
        memcpy(self.hashes + self.hash_count, note + 2, note[1] * sizeof(int32_t))
        self.hash_count += note[1]
        self.count += 1
        return P_DONE

    cdef int reserve(self) noexcept nogil:
        """Room for one more record."""
        cdef void* grown
        cdef int64_t capacity
        if self.count == self.capacity:
            capacity = max(4096, self.capacity * 2)
            grown = realloc(self.items, capacity * sizeof(Item))
            if grown == NULL:
                return -1
            self.items = <Item*> grown
            self.capacity = capacity
        if self.hash_count + MOST_KEYS > self.hash_capacity:
            capacity = max(16384, self.hash_capacity * 2)
            grown = realloc(self.hashes, capacity * sizeof(int32_t))
            if grown == NULL:
                return -1
            self.hashes = <int32_t*> grown
            self.hash_capacity = capacity
        return 0

    def stretch(self, int64_t begin, int64_t end):
        """Where the records in [begin, end) that follow each other without a gap end, and how many entries they ask for."""
        cdef int64_t i, keys = 0, at = begin
        cdef const Item* item
        with nogil:
            for i in range(self.count):
                item = &self.items[i]
                if item.offset >= begin:
                    if item.offset != at or item.offset + item.size > end:
                        break
                    at += item.size
                    keys += item.keys
        return at, keys

    def put_keys(self, Index index not None, int64_t begin, int64_t end):
        """Put the entries of the records in [begin, end) into an index; `stretch` says how much room it needs.

        May run beside a `run` whose dispatcher is told, by `index_from`, that they are there.
        """
        cdef int64_t i, number = 0, ahead
        cdef int32_t k
        cdef bint full = False
        cdef const Item* item
        with nogil:
            for i in range(self.count):
                item = &self.items[i]
                if item.offset >= end or full:
                    break
                if item.offset >= begin:
                    for k in range(item.keys):
                        ahead = number + k + AHEAD
                        if ahead < self.hash_count:
                            prefetch_write(index.state.base + 40 + 4 * <int64_t> (self.hashes[ahead] % index.state.slots))
                        full = full or not index_put(&index.state, self.hashes[number + k], item.offset, item.timestamp)
                number += item.keys
            index_store_header(&index.state)
        if full:
            raise ValueError("the index has no room for all entries")

    def run(self, Dispatch dispatch not None, int64_t end):
        """Dispatch the records that end at or before `end`, as `Dispatch.run` would; answers as it does.

        Every queue must be known. BLANK: something else lies before the next record. Records that were dispatched
        meanwhile are left out.
        """
        cdef int code
        self.running = True
        with nogil:
            code = self.run_items(dispatch, end)
            code = dispatch.finish(code)
        self.running = False
        return code

    cdef int run_items(self, Dispatch dispatch, int64_t end) noexcept nogil:
        cdef Item* item
        cdef int code
        cdef int32_t i
        while self.next < self.count:
            item = &self.items[self.next]
            if item.offset < dispatch.position:
                self.next += 1
                self.next_hash += item.keys
                continue
            if item.offset + item.size > end:
                break
            if item.offset > dispatch.position:
                return C_BLANK
            if not dispatch.queue_done:
                code = dispatch.stage(item.queue, item.offset, item.size, item.tags, item.queue_offset, item.timestamp)
                if code != C_DONE:
                    return code
            dispatch.queue_done = True
            if dispatch.indexing and item.offset >= dispatch.index_from and item.keys > 0:
                if dispatch.index is None:
                    return C_INDEX_FULL
                # All or none: whoever goes on with this record begins with its first key.
                while dispatch.waiting_tail - dispatch.waiting_head + item.keys > WAITING:
                    if not dispatch.put_entries(WAITING // 2):
                        return C_INDEX_FULL
                for i in range(item.keys):
                    dispatch.want_entry(self.hashes[self.next_hash + i], item.offset, item.timestamp)
            dispatch.passed(item.offset, item.size, item.timestamp)
            self.next += 1
            self.next_hash += item.keys
        return C_DONE
