"""Which records of a log become rows: by queue and offset, by topic, tag, key and time, without the interpreter lock."""

from cython cimport final
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from penstock._native.queue cimport queue_hash
from penstock._native.record cimport (
    SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION, Properties, Record, Span, scan_properties,
)

cdef const char* FILLER = b"PENSTOCK_FILLER"

cdef enum:
    FILLER_LENGTH = 15


cdef Span* spans_of(list texts, list kept) except? NULL:
    """The texts as spans; `kept` keeps their bytes."""
    cdef Span* spans = <Span*> malloc(max(1, len(texts)) * sizeof(Span))
    cdef const uint8_t* at
    if spans == NULL:
        raise MemoryError()
    for i, text in enumerate(texts):
        kept.append(text)
        at = text
        spans[i].at = at
        spans[i].length = <int32_t> len(text)
    return spans


cdef inline bint equal(const Span* a, const uint8_t* at, int32_t length) noexcept nogil:
    return a.length == length and memcmp(a.at, at, length) == 0


@final
cdef class Selection:
    """What is wanted of a log. Without arguments everything but the store's own filler.

    `queues`: (topic, queue id, start, end, low, high) with queue offsets [start, end) whose units point into
    [low, high) of the log; None: any. `topics`: names; `matches(topic) -> bool` is asked once for any other name.
    With both, queues that are listed are bounded and the others judged by topic. `queued`: leave out what a
    dispatcher leaves out (half and rolled back messages), and a record whose place in the queue is taken.
    `tags`, `keys`: one of them must be the record's. `since`, `until`: store times [since, until).
    """

    def __cinit__(
        self, *, object queues=None, object topics=None, object matches=None, bint queued=False, object tags=None,
        object keys=None, object since=None, object until=None,
    ):
        cdef list texts
        self.kept = []
        self.last = -1
        self.queued = queued
        self.matches = matches
        self.has_queues = queues is not None
        self.by_topic = topics is not None or matches is not None
        self.listed = self.has_queues and not self.by_topic
        self.since = -INT64_MAX if since is None else since
        self.until = INT64_MAX if until is None else until
        self.rehash()
        for topic, queue_id, start, end, low, high in queues or ():
            self.put(topic.encode("utf-8", "surrogateescape"), queue_id, True, start, end, low, high)
        for topic in topics or ():
            self.put(topic.encode("utf-8", "surrogateescape"), -1, True, 0, INT64_MAX, 0, INT64_MAX)
        if tags is not None:
            texts = [tag.encode("utf-8", "surrogateescape") for tag in tags]
            self.tags = spans_of(texts, self.kept)
            self.tag_count = <int32_t> len(texts)
        if keys is not None:
            texts = [key.encode("utf-8", "surrogateescape") for key in keys]
            self.keys = spans_of(texts, self.kept)
            self.key_count = <int32_t> len(texts)
        self.want_properties = self.tags != NULL or self.keys != NULL

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.count):
            free(self.entries[i].topic)
        free(self.entries)
        free(self.table)
        free(self.tags)
        free(self.keys)

    cdef int rehash(self) except -1:
        """A table for twice as many entries."""
        cdef uint32_t size = 64, at
        cdef int32_t i
        while size < <uint32_t> self.capacity * 4:
            size *= 2
        free(self.table)
        self.table = <int32_t*> malloc(size * sizeof(int32_t))
        if self.table == NULL:
            raise MemoryError()
        self.mask = size - 1
        for at in range(size):
            self.table[at] = -1
        for i in range(self.count):
            at = self.entries[i].hash & self.mask
            while self.table[at] >= 0:
                at = (at + 1) & self.mask
            self.table[at] = i
        return 0

    cdef int put(self, bytes topic, int32_t queue_id, bint accepted, int64_t start, int64_t end, int64_t low, int64_t high) except -1:
        cdef Wanted* grown
        cdef Wanted* entry
        cdef uint32_t at
        cdef const uint8_t* text = topic
        if self.find(text, <int32_t> len(topic), queue_id) >= 0:
            raise ValueError(f"queue {queue_id} of {topic!r} is listed twice")
        if self.count == self.capacity:
            grown = <Wanted*> realloc(self.entries, max(16, self.capacity * 2) * sizeof(Wanted))
            if grown == NULL:
                raise MemoryError()
            self.entries = grown
            self.capacity = max(16, self.capacity * 2)
            self.rehash()
        entry = &self.entries[self.count]
        entry.topic = <uint8_t*> malloc(max(1, len(topic)))
        if entry.topic == NULL:
            raise MemoryError()
        memcpy(entry.topic, text, len(topic))
        entry.topic_length = <int32_t> len(topic)
        entry.queue_id = queue_id
        entry.hash = queue_hash(text, entry.topic_length, queue_id)
        entry.accepted = accepted
        entry.start = entry.next = start
        entry.end = end
        entry.low = low
        entry.high = high
        entry.taken = 0
        at = entry.hash & self.mask
        while self.table[at] >= 0:
            at = (at + 1) & self.mask
        self.table[at] = self.count
        self.count += 1
        return 0

    cdef int32_t find(self, const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil:
        cdef Wanted* entry
        cdef uint32_t h, at
        if self.last >= 0:
            entry = &self.entries[self.last]
            if entry.queue_id == queue_id and entry.topic_length == length and memcmp(entry.topic, topic, length) == 0:
                return self.last
        h = queue_hash(topic, length, queue_id)
        at = h & self.mask
        while self.table[at] >= 0:
            entry = &self.entries[self.table[at]]
            if (
                entry.hash == h and entry.queue_id == queue_id and entry.topic_length == length
                and memcmp(entry.topic, topic, length) == 0
            ):
                self.last = self.table[at]
                return self.last
            at = (at + 1) & self.mask
        return -1

    cdef int judge(self, const uint8_t* p, const Record* r, int64_t offset, Properties* properties) noexcept nogil:
        """Whether the record at physical offset `offset` is wanted, its queue offset aside; `found` is its queue's entry.

        Fills `properties` if it had to look at them; then `properties.keys.at` is not NULL.
        """
        cdef const uint8_t* topic = p + r.topic_at
        cdef int32_t i, start, at
        cdef int kind = r.sys_flag & SYS_TRANSACTION
        cdef Wanted* entry
        properties.keys.at = NULL
        self.found = NULL
        if r.topic_length == FILLER_LENGTH and kind == SYS_ROLLBACK and memcmp(topic, FILLER, FILLER_LENGTH) == 0:
            return LEAVE
        if self.queued and (kind == SYS_PREPARED or kind == SYS_ROLLBACK):
            return LEAVE
        if self.has_queues:
            i = self.find(topic, r.topic_length, r.queue_id)
            if i >= 0:
                entry = self.found = &self.entries[i]
                if offset < entry.low or offset >= entry.high:
                    return LEAVE
            elif self.listed:
                return LEAVE
        if self.by_topic and self.found == NULL:
            i = self.find(topic, r.topic_length, -1)
            if i < 0:
                return ASK if self.matches is not None else LEAVE
            if not self.entries[i].accepted:
                return LEAVE
        if r.store_timestamp < self.since or r.store_timestamp >= self.until:
            return LEAVE
        if not self.want_properties:
            return TAKE
        scan_properties(p + r.properties_at, r.properties_length, properties)
        properties.keys.at = p if properties.keys.length == 0 else properties.keys.at
        if self.tags != NULL:
            for i in range(self.tag_count):
                if equal(&self.tags[i], properties.tags.at, properties.tags.length):
                    break
            else:
                return LEAVE
        if self.keys == NULL:
            return TAKE
        for i in range(self.key_count):
            if properties.unique_key.length and equal(&self.keys[i], properties.unique_key.at, properties.unique_key.length):
                return TAKE
        start = 0
        for at in range(properties.keys.length + 1):
            if at == properties.keys.length or properties.keys.at[at] == 32:
                for i in range(self.key_count):
                    if at > start and equal(&self.keys[i], properties.keys.at + start, at - start):
                        return TAKE
                start = at + 1
        return LEAVE

    cdef int ask(self, const uint8_t* p, const Record* r) except -1:
        """Have Python judge the topic of a record, once."""
        cdef bytes topic = (<const char*> p + r.topic_at)[:r.topic_length]
        accepted = bool(self.matches(topic.decode("utf-8", "replace")))
        self.put(topic, -1, accepted, 0, INT64_MAX, 0, INT64_MAX)
        return 0

    cdef void took(self, int64_t queue_offset) noexcept nogil:
        """A row of the record that was judged last."""
        if self.found != NULL:
            self.found.taken += 1
            if queue_offset >= self.found.next:
                self.found.next = queue_offset + 1

    def taken(self):
        """(topic, queue id, rows) of every listed queue."""
        cdef int32_t i
        return [
            (
                (<const char*> self.entries[i].topic)[:self.entries[i].topic_length].decode("utf-8", "surrogateescape"),
                self.entries[i].queue_id,
                self.entries[i].taken,
            )
            for i in range(self.count)
            if self.entries[i].queue_id >= 0
        ]
