"""The put path: encode, then under the put lock assign offsets, patch, copy and publish.

What the lock guards is one function that neither needs the interpreter nor can fail halfway. Rolling to the next file
and waiting for the disk happen outside of it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from penstock._native.batchbody cimport next_item
from penstock._native.encode cimport (
    CREATE_MAPPED_FILE_FAILED, FLUSH_DISK_TIMEOUT, MESSAGE_ILLEGAL, NEED_HOOK, NEED_ROLL, OS_PAGE_CACHE_BUSY, PUT_OK,
    SERVICE_NOT_AVAILABLE, UNKNOWN_ERROR, Buffer, Encoded, Encoder, Item, buffer_reserve,
)
from penstock._native.encode import STATUSES
from penstock._native.endian cimport put32, put64
from penstock._native.filestate cimport FileState, claim, load_position, state_write, store_position
from penstock._native.flush cimport FLUSH_FAILED, FLUSH_TIMED_OUT, Flusher
from penstock._native.mapping cimport Mapping
from penstock._native.putresult cimport PutResult, PutResults, appended, refused, set_place
from penstock._native.queue cimport Queue, QueueState
from penstock._native.record cimport (
    BLANK_LENGTH, MAGIC_BLANK, REC_OK, SYS_COMMIT, SYS_TRANSACTION, Record, parse_record, penstock_crc_setup, put_crc_property,
)
from penstock._native.signal cimport Signal
from penstock._native.threads cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_trylock, pthread_mutex_unlock,
    wall_ms,
)

penstock_crc_setup()

HOOK = NEED_HOOK
ROLLED = NEED_ROLL
MAPPED, WRITTEN = range(2)

cdef enum:
    MODE_MAPPED = 0
    MODE_WRITTEN = 1
    # Copies longer than this let other Python threads run meanwhile.
    LONG_COPY = 65536
    # From here on one system call costs less than the page faults of storing through the mapping.
    LONG_WRITE = 32768

cdef tuple STATUS_NAMES = STATUSES


cdef inline int place(int mode, FileState* f, int64_t position, const uint8_t* data, int64_t n) noexcept nogil:
    if f.write_buffer != NULL:
        memcpy(f.write_buffer + position, data, n)
        return 0
    if mode == MODE_MAPPED and f.write_error == 0 and (n < LONG_WRITE or f.fd < 0):
        claim(f, position + n)
        f.stored = 1
        memcpy(f.base + position, data, n)
        return 0
    return state_write(f, position, data, n)


cdef class Appender:
    """The one way into the log. Thread-safe."""

    def __cinit__(self, Encoder encoder not None, Flusher flusher not None, Signal signal not None, object roll not None):
        pthread_mutex_init(&self.mutex, NULL)
        self.encoder = encoder
        self.flusher = flusher
        self.signal = signal
        self.roll = roll
        self.sync_timeout = 5.0
        self.busy_after_ms = 1000

    def __dealloc__(self):
        cdef Buffer* b
        while self.buffers != NULL:
            b = self.buffers
            self.buffers = b.next
            free(b.data)
            free(b.records)
            free(b)
        pthread_mutex_destroy(&self.mutex)

    def use_file(self, Mapping mapping):
        """Append to this file from now on; None: to none."""
        if mapping is not None:
            mapping.pin()
            if mapping.state.fd < 0 and self.mode == MODE_WRITTEN:
                self.mode = MODE_MAPPED
        self.take_lock()
        previous = self.mapping
        self.mapping = mapping
        self.file = &mapping.state if mapping is not None else NULL
        pthread_mutex_unlock(&self.mutex)
        if previous is not None:
            (<Mapping> previous).unpin()

    cdef Buffer* take_buffer(self) except NULL:
        cdef Buffer* b = self.buffers
        if b != NULL:
            self.buffers = b.next
        else:
            b = <Buffer*> calloc(1, sizeof(Buffer))
            if b == NULL:
                raise MemoryError()
        b.used = 0
        b.count = 0
        return b

    cdef void give_buffer(self, Buffer* b) noexcept:
        if b.capacity > 1 << 20:
            # One large message must not keep its buffer for ever.
            free(b.data)
            b.data = NULL
            b.capacity = 0
        b.next = self.buffers
        self.buffers = b

    cdef void take_lock(self) noexcept:
        """Wait for the put lock without holding up other Python threads."""
        if pthread_mutex_trylock(&self.mutex) != 0:
            with nogil:
                pthread_mutex_lock(&self.mutex)

    cdef int append(self, Buffer* b, int32_t first, int64_t now, bint whole, int32_t* next) noexcept nogil:
        """Append records from `first` on; `next` is the first one that was not. The put lock is held.

        PUT_OK, NEED_ROLL (the file is full now), or -errno (nothing changed).
        """
        cdef FileState* f = self.file
        cdef int64_t wrote, left, length = 0, offset
        cdef int32_t i = first, last
        cdef Encoded* e
        cdef uint8_t blank[8]
        cdef int code = 0
        next[0] = first
        if f == NULL:
            return NEED_ROLL
        wrote = load_position(&f.wrote)
        left = f.size - wrote
        if left <= 0:
            return NEED_ROLL
        while i < b.count and length + b.records[i].size + BLANK_LENGTH <= left:
            length += b.records[i].size
            i += 1
        if i == first or (whole and i < b.count):
            put32(blank, <int32_t> left)
            put32(blank + 4, MAGIC_BLANK)
            if left >= BLANK_LENGTH:
                code = place(self.mode, f, wrote, blank, BLANK_LENGTH)
                if code:
                    return code
            store_position(&f.wrote, f.size)
            return NEED_ROLL
        last = i
        offset = f.file_from + wrote
        for i in range(first, last):
            e = &b.records[i]
            e.physical_offset = offset
            e.store_timestamp = now
            e.queue_offset = 0
            if e.takes_offset:
                e.queue_offset = e.queue.next_offset
                e.queue.next_offset += e.messages
            put64(b.data + e.at + 20, e.queue_offset)
            put64(b.data + e.at + 28, offset)
            put64(b.data + e.at + e.store_timestamp_at, now)
            if self.encoder.property_crc:
                put_crc_property(b.data + e.at, e.size)
            offset += e.size
        code = place(self.mode, f, wrote, b.data + b.records[first].at, length)
        if code:
            for i in range(first, last):
                if b.records[i].takes_offset:
                    b.records[i].queue.next_offset -= b.records[i].messages
            return code
        f.store_timestamp = now
        store_position(&f.wrote, wrote + length)
        self.put_count += last - first
        self.put_bytes += length
        next[0] = last
        return PUT_OK

    cdef int append_all(self, Buffer* b, int64_t now, bint whole, bint system_clock, bint locked, int32_t* done) except? -1000:
        """Append everything, rolling where a file ends. Answers as `append`, or CREATE_MAPPED_FILE_FAILED."""
        cdef int code
        cdef int32_t next = 0
        done[0] = 0
        while True:
            if not locked:
                if pthread_mutex_trylock(&self.mutex) != 0:
                    if self.locked_since and wall_ms() - self.locked_since > self.busy_after_ms:
                        return OS_PAGE_CACHE_BUSY
                    with nogil:
                        pthread_mutex_lock(&self.mutex)
                    if system_clock:
                        now = wall_ms()
                # Store times do not fall in log order while the clock does not: `now` was taken with the interpreter
                # lock held, and so is the put lock, unless it had to be waited for.
                self.locked_since = now
            if b.used > LONG_COPY:
                with nogil:
                    code = self.append(b, done[0], now, whole, &next)
                    if not locked:
                        self.locked_since = 0
                        pthread_mutex_unlock(&self.mutex)
            else:
                code = self.append(b, done[0], now, whole, &next)
                if not locked:
                    self.locked_since = 0
                    pthread_mutex_unlock(&self.mutex)
            done[0] = next
            if code == PUT_OK and next == b.count:
                self.signal.notify_fast()
                return PUT_OK
            if code < 0:
                return code
            if code == NEED_ROLL:
                if locked:
                    pthread_mutex_unlock(&self.mutex)
                try:
                    reason = self.roll()
                finally:
                    if locked:
                        self.take_lock()
                if reason is not None:
                    self.why = reason
                    return CREATE_MAPPED_FILE_FAILED
                if locked:
                    # The lock was free meanwhile: offsets that the caller looked up before may be taken.
                    return NEED_ROLL

    cdef int wait_disk(self, int64_t end) except -1:
        """PUT_OK or FLUSH_DISK_TIMEOUT; OSError when the disk failed."""
        cdef int answer
        cdef int64_t timeout = <int64_t> (self.sync_timeout * 1e9)
        if self.flusher.memory:
            return PUT_OK if self.flusher.wait(end, self.sync_timeout) else FLUSH_DISK_TIMEOUT
        with nogil:
            answer = self.flusher.wait_flushed(end, timeout)
        if answer == FLUSH_FAILED:
            raise OSError(self.flusher.failed, "fdatasync of the commit log failed")
        return FLUSH_DISK_TIMEOUT if answer == FLUSH_TIMED_OUT else PUT_OK

    cdef object store(self, object message, int64_t now, bint hooked, bint locked, bint stay, int32_t messages, bint* waits):
        """Append one message: its PutResult, HOOK or ROLLED. With `stay` it is ROLLED as soon as a file has no room."""
        cdef Buffer* b
        cdef int code
        cdef int32_t done
        cdef bint system_clock = now < 0
        cdef PutResult result
        waits[0] = False
        if self.unavailable is not None:
            return refused(SERVICE_NOT_AVAILABLE, self.unavailable)
        if system_clock:
            now = wall_ms()
        b = self.take_buffer()
        try:
            code = self.encoder.encode(message, b, now, hooked)
            if code == NEED_HOOK:
                return HOOK
            if code != PUT_OK:
                return refused(code, self.encoder.reason)
            b.records[0].messages = messages
            # Made now, for it keeps the record's queue and host, which the encoder may forget before they are used.
            result = appended(&b.records[0])
            if stay and (self.file == NULL or load_position(&self.file.wrote) + b.used + BLANK_LENGTH > self.file.size):
                return ROLLED
            code = self.append_all(b, now, False, system_clock, locked, &done)
            if code < 0:
                raise OSError(-code, "write to the commit log failed", self.mapping.path if self.mapping is not None else None)
            if code == NEED_ROLL:
                return ROLLED
            if code != PUT_OK:
                return refused(code, self.why if code == CREATE_MAPPED_FILE_FAILED else "the put lock is held for too long")
            waits[0] = b.records[0].waits
            set_place(result, &b.records[0])
            return result
        finally:
            self.give_buffer(b)

    def put(self, object message, int64_t now=-1, bint hooked=False, bint wait=True, bint locked=False, int32_t messages=1):
        """Store one message: a PutResult, or HOOK when the put hooks have to see it first.

        `now`: the store time when the clock is not the system's. With sync flush it returns when the record is on disk,
        unless `wait` is false. Raises OSError when a write or the sync failed. With `locked` (the caller holds the put
        lock) the answer may be ROLLED: there is a new file, but the lock was free meanwhile; look up offsets again.
        """
        cdef bint waits
        cdef PutResult result
        answer = self.store(message, now, hooked, locked, False, messages, &waits)
        if self.sync and type(answer) is PutResult:
            result = answer
            if waits and wait:
                result.code = self.wait_disk(result.physical_offset + result.size)
            elif not waits and not self.flusher.memory and result.code == PUT_OK:
                self.flusher.want(result.physical_offset + result.size)  # nobody waits, but it must become visible
        return answer

    def put_many(self, object messages not None, int64_t now=-1, bint hooked=False, bint wait=True, bint whole=False):
        """Store messages in one go: one lock, one wait for the disk. A PutResults, or HOOK (then nothing was stored).

        Messages that are refused leave the others alone. `whole`: all in one file, as a client batch must be.
        """
        cdef PutResults results = PutResults.__new__(PutResults)
        cdef Buffer* b
        cdef int code
        cdef int64_t encoded_at = now if now >= 0 else wall_ms()
        if self.unavailable is not None:
            self.refuse_all(results, len(messages))
            return results
        b = self.take_buffer()
        try:
            for message in messages:
                code = self.encoder.encode(message, b, encoded_at, hooked)
                if code == NEED_HOOK:
                    return HOOK
                self.note(results, b, code)
            self.append_noted(results, b, now, wait, whole)
        finally:
            self.give_buffer(b)
        return results

    def put_batch(self, object message not None, object body not None, int64_t now=-1, bint wait=True):
        """As `put_many` of a client's batch, all in one file and without hooks, from the bytes of its body.

        Its messages have their own flags, bodies and properties; everything else is that of `message`. ValueError, and
        nothing stored, when a length leads out of the body.
        """
        cdef PutResults results = PutResults.__new__(PutResults)
        cdef Buffer* b
        cdef Py_buffer view
        cdef Item item
        cdef Py_ssize_t count = 0
        cdef int64_t at = 0, encoded_at = now if now >= 0 else wall_ms()
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        b = NULL
        try:
            if self.unavailable is not None:
                while next_item(<const uint8_t*> view.buf, &at, view.len, &item):
                    count += 1
                self.refuse_all(results, count)
                return results
            b = self.take_buffer()
            while next_item(<const uint8_t*> view.buf, &at, view.len, &item):
                self.note(results, b, self.encoder.encode_item(message, &item, b, encoded_at))
            self.append_noted(results, b, now, wait, True)
        finally:
            PyBuffer_Release(&view)
            if b != NULL:
                self.give_buffer(b)
        return results

    cdef int refuse_all(self, PutResults results, Py_ssize_t count) except -1:
        cdef Py_ssize_t place
        results.count = count
        for place in range(count):
            results.fail(place, refused(SERVICE_NOT_AVAILABLE, self.unavailable))
        return 0

    cdef int note(self, PutResults results, Buffer* b, int code) except -1:
        """Count a message that was encoded or refused."""
        if code == PUT_OK:
            results.hold(&b.records[b.count - 1])
            if results.failures is not None:
                results.order.append(b.count - 1)
        else:
            results.fail(results.count, refused(code, self.encoder.reason))
            results.order.append(-1)
        results.count += 1
        return 0

    cdef int append_noted(self, PutResults results, Buffer* b, int64_t now, bint wait, bint whole) except -1:
        """Append what was encoded, and wait for the disk where that is asked for."""
        cdef int code
        cdef int32_t done = 0, i
        cdef Py_ssize_t place
        cdef bint system_clock = now < 0, waits = False
        if b.count == 0:
            return 0
        if whole and b.used + BLANK_LENGTH > self.encoder.max_record_size:
            code = MESSAGE_ILLEGAL
        else:
            code = self.append_all(b, wall_ms() if system_clock else now, whole, system_clock, False, &done)
        if code < 0 and done == 0:
            raise OSError(-code, "write to the commit log failed", self.mapping.path if self.mapping is not None else None)
        results.take(b, done)
        for i in range(done):
            waits = waits or b.records[i].waits
        if code != PUT_OK and done < b.count:
            # What was appended is stored; the rest is not, and its results say so.
            reason = self.why if code == CREATE_MAPPED_FILE_FAILED else f"not appended, code {code}"
            for place in range(results.count):
                if (place if results.order is None else <Py_ssize_t> results.order[place]) >= done:
                    results.fail(place, refused(code if code > 0 else UNKNOWN_ERROR, reason))
        if self.sync and waits and wait and done:
            results.code = self.wait_disk(results.end_offset)
        return 0

    def put_records(self, uint8_t[::1] records not None, const int32_t[::1] slots not None, list queues not None,
                    int64_t now=-1, bint held=False):
        """Append records that are whole but for queue offset, physical offset and store time, as put_many would.

        Those are filled in where the records lie. Record i goes to `queues[slots[i]]`, whose name and number it carries
        already: ValueError for one that does not, or that no file has room for, and then nothing is appended. Does not wait
        for the disk. Returns how many were appended and, if not all, why; OSError when a write failed at once. `held`: the
        log gets zeros for length and magic of the first one, and ends before it until they are written.
        """
        cdef Buffer* b
        cdef uint8_t* own
        cdef uint8_t head[8]
        cdef int64_t own_capacity
        cdef int code
        cdef int32_t done = 0
        cdef bint system_clock = now < 0
        if self.unavailable is not None:
            return 0, self.unavailable
        if slots.shape[0] == 0:
            return 0, None
        if self.encoder.property_crc:
            raise ValueError("this log has whole-record checksums, for which the records have no room")
        b = self.take_buffer()
        own, own_capacity = b.data, b.capacity
        try:
            b.data, b.capacity = &records[0] if records.shape[0] else NULL, records.shape[0]
            self.take_records(b, slots, queues)
            memcpy(head, b.data, 8)
            if held:
                memset(b.data, 0, 8)
            code = self.append_all(b, wall_ms() if system_clock else now, False, system_clock, False, &done)
            memcpy(b.data, head, 8)
        finally:
            b.data, b.capacity = own, own_capacity
            self.give_buffer(b)
        if code < 0 and done == 0:
            raise OSError(-code, "write to the commit log failed", self.mapping.path if self.mapping is not None else None)
        if code < 0:
            return done, f"write to the commit log failed: error {-code}"
        if code != PUT_OK:
            return done, self.why if code == CREATE_MAPPED_FILE_FAILED else f"the log did not take it: {STATUS_NAMES[code]}"
        return done, None

    cdef int take_records(self, Buffer* b, const int32_t[::1] slots, list queues) except -1:
        """Note where the finished records of a buffer begin and which queue each belongs to."""
        cdef Py_ssize_t i, most = len(queues)
        cdef const char* fault = NULL
        cdef QueueState** states = <QueueState**> malloc((most + 1) * sizeof(QueueState*))
        if states == NULL:
            raise MemoryError()
        try:
            for i in range(most):
                states[i] = (<Queue?> queues[i]).state
            with nogil:
                for i in range(slots.shape[0]):
                    fault = self.take_record(b, states[slots[i]] if 0 <= slots[i] < most else NULL)
                    if fault != NULL:
                        break
        finally:
            free(states)
        if fault != NULL:
            raise ValueError(f"record {i} at byte {b.used}: {fault.decode()}")
        if b.used != b.capacity:
            raise ValueError(f"{b.capacity - b.used} bytes behind the last record")
        return 0

    cdef const char* take_record(self, Buffer* b, QueueState* queue) noexcept nogil:
        """Note the record at the end of a buffer; else why not."""
        cdef Record r
        if parse_record(b.data + b.used, b.capacity - b.used, &r) != REC_OK or r.size > self.encoder.max_record_size:
            return b"no record that fits"
        if queue == NULL or r.queue_id != queue.queue_id or r.topic_length != queue.topic_length \
                or memcmp(b.data + b.used + r.topic_at, queue.topic, r.topic_length) != 0:
            return b"it belongs to another queue than its slot"
        if not buffer_reserve(b, 0):
            return b"no memory"
        b.records[b.count] = Encoded(
            b.used, r.size, 1, r.store_host_at - 8, r.sys_flag & SYS_TRANSACTION in (0, SYS_COMMIT), False, queue, NULL, 0, 0, 0,
        )
        b.used += r.size
        b.count += 1
        return NULL

    def lock(self):
        """Take the put lock from Python, for messages that need their queue offset before they are encoded."""
        self.take_lock()
        self.locked_since = wall_ms()

    def unlock(self):
        self.locked_since = 0
        pthread_mutex_unlock(&self.mutex)

    @property
    def current(self):
        """The file that is appended to."""
        return self.mapping

    @property
    def end_offset(self):
        """Where the next record goes, if the file still has room for it."""
        return 0 if self.file == NULL else self.file.file_from + load_position(&self.file.wrote)
