"""Message objects become record bytes. Plain twin: format.record.encode_record.

Everything but queue offset, physical offset and store timestamp is final here; the appender patches those in the lock.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.list cimport PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_TYPE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy

from penstock._native.endian cimport get32, put16, put32, put64
from penstock._native.queue cimport Queue
from penstock._native.record cimport (
    CRC_RESERVED, MAGIC_V1, MAGIC_V2, PROPERTIES_LIMIT, SYS_BORN_V6, SYS_COMMIT, SYS_PREPARED, SYS_ROLLBACK, SYS_STORE_V6, SYS_TRANSACTION,
    penstock_crc32, penstock_crc_setup,
)
from penstock._native.threads cimport wall_ms

penstock_crc_setup()

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_CheckExact(object o)
    bint PyUnicode_Check(object o)
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

STATUSES = (
    "PUT_OK", "MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED", "FLUSH_DISK_TIMEOUT", "SERVICE_NOT_AVAILABLE",
    "CREATE_MAPPED_FILE_FAILED", "OS_PAGE_CACHE_BUSY", "UNKNOWN_ERROR",
    "WHEEL_TIMER_MSG_ILLEGAL", "WHEEL_TIMER_FLOW_CONTROL", "WHEEL_TIMER_NOT_ENABLE",  # said by the hooks alone
)

FIELDS = (
    "topic", "body", "tags", "keys", "queue_id", "properties", "unique_key", "flag", "sys_flag", "born_timestamp", "born_host",
    "store_host", "reconsume_times", "prepared_transaction_offset", "delay_level", "wait", "raw_properties",
)

cdef str KEYS = "KEYS", TAGS = "TAGS", UNIQ_KEY = "UNIQ_KEY", WAIT = "WAIT", DELAY = "DELAY", CRC32 = "__CRC32#"
cdef str TRANSIENT = "__RMQ.TRANSIENT."


cdef bint buffer_reserve(Buffer* b, int64_t more) noexcept nogil:
    cdef int64_t capacity
    cdef void* grown
    if b.used + more > b.capacity:
        capacity = b.capacity * 2 if b.capacity else 65536
        while capacity < b.used + more:
            capacity *= 2
        grown = realloc(b.data, capacity)
        if grown == NULL:
            return False
        b.data = <uint8_t*> grown
        b.capacity = capacity
    if b.count == b.record_capacity:
        grown = realloc(b.records, (b.record_capacity * 2 if b.record_capacity else 64) * sizeof(Encoded))
        if grown == NULL:
            return False
        b.records = <Encoded*> grown
        b.record_capacity = b.record_capacity * 2 if b.record_capacity else 64
    return True


cdef int find_slots(object message_type, Py_ssize_t* slots) except -1:
    """Where the fields lie in an object of exactly this type."""
    cdef int i
    for i in range(FIELD_COUNT):
        member = getattr(message_type, FIELDS[i])
        if type(member).__name__ != "member_descriptor":
            raise TypeError(f"{message_type!r} has no plain field {FIELDS[i]}")
        slots[i] = (<PyMemberDescrObject*> <PyObject*> member).d_member.offset
    return 0


cdef struct Text:
    const char* at
    Py_ssize_t length


cdef class Encoder:
    """Encodes messages of one exact type, whose fields it reads where they lie."""

    def __cinit__(
        self, object message_type not None, object find_queue not None, object parse_host not None, bytes own_host not None,
        int64_t max_message_size, bytes unique_prefix not None,
    ):
        """`unique_prefix`: address, process and class part of unique ids, 10 or 22 bytes (spec 4.2)."""
        cdef bytes prefix = unique_prefix.hex().upper().encode()
        find_slots(message_type, self.slots)
        self.message_type = message_type
        self.find_queue = find_queue
        self.parse_host = parse_host
        self.own_host = own_host
        self.max_message_size = max_message_size
        self.topics = {}
        self.hosts = {}
        self.generate_unique_key = True
        self.max_record_size = max_message_size + 65536
        if len(prefix) != 20:
            raise ValueError("the unique id prefix has 10 bytes")
        memcpy(self.unique, <const char*> prefix, 20)

    def forget_queues(self):
        """Queues were deleted or loaded anew: look them up again."""
        self.topics = {}
        self.last_topic = None
        self.last_queues = None
        self.forgets += 1

    cdef int next_unique(self, int64_t now) except -1:
        """Advance the unique id in place: milliseconds since the month began, then a counter."""
        if now >= self.month_end or now < self.month_start:
            self.month_start, self.month_end = month_of(now)
        if now != self.unique_ms:
            self.unique_ms = now
            put_hex(self.unique + 20, <uint32_t> (now - self.month_start), 8)
        self.unique_counter = (self.unique_counter + 1) & 0xFFFF
        put_hex(self.unique + 28, <uint32_t> self.unique_counter, 4)
        return 0

    cdef bytes host(self, object text):
        cdef PyObject* known = PyDict_GetItem(self.hosts, text)
        if known != NULL:
            return <bytes> <object> known
        address, port = self.parse_host(text)
        made = bytes(address) + int(port).to_bytes(4, "big")
        if len(self.hosts) >= 4096:
            self.hosts.clear()
        self.hosts[text] = made
        return made

    cdef Queue queue(self, object topic, object queue_id):
        """The queue of a message, or None when its name or number is not allowed."""
        cdef PyObject* known
        cdef Py_ssize_t number
        cdef object queue
        if topic is not self.last_topic:
            known = PyDict_GetItem(self.topics, topic)
            if known == NULL:
                if self.find_queue(topic, queue_id) is None:
                    return None
                self.topics[topic] = []
                known = PyDict_GetItem(self.topics, topic)
            self.last_topic = topic
            self.last_queues = <list> <object> known
        if not PyLong_CheckExact(queue_id):
            return None
        number = queue_id
        if 0 <= number < PyList_GET_SIZE(self.last_queues):
            queue = self.last_queues[number]
            if queue is not None:
                return <Queue> queue
        queue = self.find_queue(topic, queue_id)
        if queue is not None and number < 65536:
            while PyList_GET_SIZE(self.last_queues) <= number:
                self.last_queues.append(None)
            self.last_queues[number] = queue
        return <Queue> queue

    cdef int refuse(self, int status, str reason) except -1:
        self.reason = reason
        return status

    cdef int encode(self, object message, Buffer* b, int64_t now, bint hooked) except -1:
        """Append one encoded record to `b`; a status other than PUT_OK leaves it as it was."""
        cdef object body
        cdef Queue queue
        cdef Py_buffer view
        cdef const uint8_t* body_at
        cdef Py_ssize_t body_length
        cdef bint viewed = False
        if <object> Py_TYPE(message) is not self.message_type:
            raise TypeError(f"a {self.message_type.__name__} is needed, not {type(message).__name__}")
        if self.hooks and not hooked:
            if field(message, self.slots[F_DELAY_LEVEL]) != 0 or field(message, self.slots[F_PROPERTIES]) is not None \
                    or field(message, self.slots[F_RAW]) is not None or field(message, self.slots[F_SYS_FLAG]) != 0:
                return NEED_HOOK
        queue = self.queue_of(message)
        if queue is None:
            return self.refuse(MESSAGE_ILLEGAL, "topic or queue id is not allowed")
        body = field(message, self.slots[F_BODY])
        if PyBytes_CheckExact(body):
            body_at = <const uint8_t*> PyBytes_AS_STRING(body)
            body_length = PyBytes_GET_SIZE(body)
        elif body is not None and PyObject_CheckBuffer(body):
            PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            viewed = True
            body_at = <const uint8_t*> view.buf
            body_length = view.len
        else:
            return self.refuse(MESSAGE_ILLEGAL, "the body is no bytes")
        try:
            return self.encode_checked(message, queue, body_at, body_length, NULL, b, now)
        finally:
            if viewed:
                PyBuffer_Release(&view)

    cdef int encode_item(self, object message, const Item* item, Buffer* b, int64_t now) except -1:
        """As `encode`, hooks aside, for a message of a batch: flag, body and properties are its own, the rest is that of `message`.

        What `b` holds are messages of the same batch.
        """
        cdef Queue queue
        if b.count and self.encode_alike(item, b):
            return PUT_OK
        if <object> Py_TYPE(message) is not self.message_type:
            raise TypeError(f"a {self.message_type.__name__} is needed, not {type(message).__name__}")
        queue = self.queue_of(message)
        if queue is None:
            return self.refuse(MESSAGE_ILLEGAL, "topic or queue id is not allowed")
        return self.encode_checked(message, queue, item.body, item.body_length, item, b, now)

    cdef bint encode_alike(self, const Item* item, Buffer* b) noexcept:
        """Append a record from the first one of its batch, of which most bytes are the same; False when it takes a closer look."""
        cdef Encoded* first = &b.records[0]
        cdef Encoded* e
        cdef int64_t head = first.store_timestamp_at + 24 + PyBytes_GET_SIZE(<object> <PyObject*> first.store_host)
        cdef int64_t topic = (1 if first.queue.topic_length < 128 else 2) + first.queue.topic_length
        cdef int64_t total = head + item.body_length + topic + 2 + item.properties_length
        cdef const uint8_t* like
        cdef uint8_t* p
        if self.property_crc or item.body_length > self.max_message_size or item.properties_length > PROPERTIES_LIMIT \
                or total > self.max_message_size + 65536 or total > self.max_record_size or not buffer_reserve(b, total):
            return False
        first = &b.records[0]
        like = b.data + first.at
        p = b.data + b.used
        memcpy(p, like, head)
        put32(p, <int32_t> total)
        put32(p + 8, <int32_t> (penstock_crc32(item.body, item.body_length) & 0x7FFFFFFF) if item.body_length else 0)
        put32(p + 16, item.flag)
        put32(p + head - 4, <int32_t> item.body_length)
        memcpy(p + head, item.body, item.body_length)
        p += head + item.body_length
        memcpy(p, like + head + get32(like + head - 4), topic)
        put16(p + topic, <int16_t> item.properties_length)
        memcpy(p + topic + 2, item.properties, item.properties_length)
        e = &b.records[b.count]
        e[0] = first[0]
        e.at = b.used
        e.size = <int32_t> total
        b.used += total
        b.count += 1
        return True

    cdef Queue queue_of(self, object message):
        """The queue of a message; None when there can't be one."""
        cdef object topic = field(message, self.slots[F_TOPIC])
        if not PyUnicode_Check(topic):
            return None
        try:
            return self.queue(topic, field(message, self.slots[F_QUEUE_ID]))
        except (UnicodeEncodeError, OverflowError):
            return None

    cdef int encode_checked(
        self, object message, Queue queue, const uint8_t* body_at, Py_ssize_t body_length, const Item* item, Buffer* b, int64_t now
    ) except -1:
        if body_length > self.max_message_size:
            return self.refuse(MESSAGE_ILLEGAL, f"the body has {body_length} bytes, the limit is {self.max_message_size}")
        try:
            return self.encode_fields(message, queue, body_at, body_length, item, b, now)
        except UnicodeEncodeError:
            return self.refuse(MESSAGE_ILLEGAL, "a text field is no Unicode text")
        except (OverflowError, TypeError) as error:
            return self.refuse(MESSAGE_ILLEGAL, f"a field is of the wrong kind: {error}")

    cdef int encode_fields(
        self, object message, Queue queue, const uint8_t* body_at, Py_ssize_t body_length, const Item* item, Buffer* b, int64_t now
    ) except -1:
        cdef Text tags, keys, unique, name, text
        cdef bytes born, stored
        cdef object properties, raw, value, key
        cdef PyObject* dict_key = NULL
        cdef PyObject* dict_value = NULL
        cdef Py_ssize_t position
        cdef int64_t total, sys_flag, length = 0, fixed, born_timestamp
        cdef int32_t topic_length = queue.state.topic_length, kind
        cdef bint generate = False, no_wait = False
        cdef Encoded* e
        cdef uint8_t* p
        cdef uint8_t* start
        cdef int64_t delay = 0
        cdef const uint8_t* raw_at = NULL
        cdef int64_t raw_length = 0
        tags.at = keys.at = unique.at = NULL
        raw = field(message, self.slots[F_RAW]) if item == NULL else None
        properties = None
        value = field(message, self.slots[F_WAIT])
        no_wait = value is not True and not value
        if item != NULL:
            raw_at, raw_length = item.properties, item.properties_length
        elif raw is not None:
            if not isinstance(raw, bytes):
                return self.refuse(MESSAGE_ILLEGAL, "raw properties are no bytes")
            raw_at, raw_length = <const uint8_t*> <const char*> <bytes> raw, len(raw)
        if raw_at != NULL:
            length = raw_length
            if self.property_crc and length and raw_at[length - 1] != 2:
                length += 1
        else:
            properties = field(message, self.slots[F_PROPERTIES])
            if properties is not None and type(properties) is not dict:
                properties = dict(properties)
            value = field(message, self.slots[F_TAGS])
            if value is not None:
                tags.at = PyUnicode_AsUTF8AndSize(value, &tags.length)
                if tags.length:
                    length += 6 + tags.length
            value = field(message, self.slots[F_KEYS])
            if value is not None:
                keys.at = PyUnicode_AsUTF8AndSize(value, &keys.length)
                if keys.length:
                    length += 6 + keys.length
            value = field(message, self.slots[F_UNIQUE_KEY])
            if value is not None:
                unique.at = PyUnicode_AsUTF8AndSize(value, &unique.length)
                if unique.length:
                    length += 10 + unique.length
            elif self.generate_unique_key and (properties is None or UNIQ_KEY not in properties):
                generate = True
                length += 42
            if no_wait:
                length += 11
            value = field(message, self.slots[F_DELAY_LEVEL])
            if value != 0:
                delay = value
                if delay < 0 or delay > 9999:
                    return self.refuse(MESSAGE_ILLEGAL, f"the delay level {delay} is not allowed")
                length += 7 + len(str(delay))
            if (tags.at != NULL and not plain(<const uint8_t*> tags.at, tags.length)) \
                    or (keys.at != NULL and not plain(<const uint8_t*> keys.at, keys.length)) \
                    or (unique.at != NULL and not plain(<const uint8_t*> unique.at, unique.length)):
                return self.refuse(MESSAGE_ILLEGAL, "a property holds a separator (0x01 or 0x02)")
            if properties is not None:
                position = 0
                while PyDict_Next(properties, &position, &dict_key, &dict_value):
                    if self.skips(<object> dict_key, tags.at != NULL, keys.at != NULL, unique.at != NULL or generate, no_wait, delay):
                        continue
                    if <object> dict_value is None:
                        continue
                    if not PyUnicode_Check(<object> dict_key) or not PyUnicode_Check(<object> dict_value):
                        return self.refuse(MESSAGE_ILLEGAL, "property names and values are text")
                    name.at = PyUnicode_AsUTF8AndSize(<object> dict_key, &name.length)
                    text.at = PyUnicode_AsUTF8AndSize(<object> dict_value, &text.length)
                    if not plain(<const uint8_t*> name.at, name.length) or not plain(<const uint8_t*> text.at, text.length):
                        return self.refuse(MESSAGE_ILLEGAL, "a property holds a separator (0x01 or 0x02)")
                    length += name.length + text.length + 2
        if self.property_crc:
            length += CRC_RESERVED
        if length > PROPERTIES_LIMIT:
            return self.refuse(PROPERTIES_SIZE_EXCEEDED, f"the properties take {length} bytes, the limit is {PROPERTIES_LIMIT}")
        value = field(message, self.slots[F_BORN_HOST])
        try:
            born = self.own_host if value is None else self.host(value)
            value = field(message, self.slots[F_STORE_HOST])
            stored = self.own_host if value is None else self.host(value)
        except (ValueError, TypeError) as error:
            return self.refuse(MESSAGE_ILLEGAL, f"host: {error}")
        fixed = 72 + len(born) + len(stored) + (3 if topic_length < 128 else 4)
        total = fixed + topic_length + body_length + length
        if total > self.max_message_size + 65536 or total > self.max_record_size:
            return self.refuse(MESSAGE_ILLEGAL, f"the record has {total} bytes")
        if not buffer_reserve(b, total):
            raise MemoryError()
        sys_flag = field(message, self.slots[F_SYS_FLAG])
        sys_flag &= ~(SYS_BORN_V6 | SYS_STORE_V6)
        if len(born) == 20:
            sys_flag |= SYS_BORN_V6
        if len(stored) == 20:
            sys_flag |= SYS_STORE_V6
        kind = <int32_t> sys_flag & SYS_TRANSACTION
        born_timestamp = field(message, self.slots[F_BORN_TIMESTAMP])
        start = b.data + b.used
        p = start
        put32(p, <int32_t> total)
        put32(p + 4, MAGIC_V1 if topic_length < 128 else MAGIC_V2)
        put32(p + 8, <int32_t> (penstock_crc32(body_at, body_length) & 0x7FFFFFFF) if body_length else 0)
        put32(p + 12, queue.state.queue_id)
        put32(p + 16, item.flag if item != NULL else <int32_t> <int64_t> field(message, self.slots[F_FLAG]))
        put64(p + 20, 0)
        put64(p + 28, 0)
        put32(p + 36, <int32_t> sys_flag)
        put64(p + 40, born_timestamp if born_timestamp else now)
        p += 48
        memcpy(p, <const char*> born, len(born))
        p += len(born)
        e = &b.records[b.count]
        e.store_timestamp_at = <int32_t> (p - start)
        put64(p, 0)
        p += 8
        memcpy(p, <const char*> stored, len(stored))
        p += len(stored)
        put32(p, <int32_t> <int64_t> field(message, self.slots[F_RECONSUME]))
        put64(p + 4, <int64_t> field(message, self.slots[F_PREPARED]))
        put32(p + 12, <int32_t> body_length)
        p += 16
        memcpy(p, body_at, body_length)
        p += body_length
        if topic_length < 128:
            p[0] = <uint8_t> topic_length
            p += 1
        else:
            put16(p, <int16_t> topic_length)
            p += 2
        memcpy(p, queue.state.topic, topic_length)
        p += topic_length
        put16(p, <int16_t> length)
        p += 2
        if raw_at != NULL:
            memcpy(p, raw_at, raw_length)
            p += raw_length
            if self.property_crc and raw_length and (p - 1)[0] != 2:
                p[0] = 2
                p += 1
        else:
            if keys.at != NULL and keys.length:
                p = put_pair(p, b"KEYS", 4, keys.at, keys.length)
            if tags.at != NULL and tags.length:
                p = put_pair(p, b"TAGS", 4, tags.at, tags.length)
            if unique.at != NULL and unique.length:
                p = put_pair(p, b"UNIQ_KEY", 8, unique.at, unique.length)
            elif generate:
                self.next_unique(now)
                p = put_pair(p, b"UNIQ_KEY", 8, <const char*> self.unique, 32)
            if no_wait:
                p = put_pair(p, b"WAIT", 4, b"false", 5)
            if delay:
                digits = str(delay).encode()
                p = put_pair(p, b"DELAY", 5, <const char*> <bytes> digits, len(digits))
            if properties is not None:
                position = 0
                while PyDict_Next(properties, &position, &dict_key, &dict_value):
                    if <object> dict_value is None or self.skips(
                        <object> dict_key, tags.at != NULL, keys.at != NULL, unique.at != NULL or generate, no_wait, delay
                    ):
                        continue
                    name.at = PyUnicode_AsUTF8AndSize(<object> dict_key, &name.length)
                    text.at = PyUnicode_AsUTF8AndSize(<object> dict_value, &text.length)
                    p = put_pair(p, name.at, name.length, text.at, text.length)
        e.at = b.used
        e.size = <int32_t> total
        e.messages = 1
        e.takes_offset = kind == 0 or kind == SYS_COMMIT
        e.waits = not no_wait
        if properties is not None and not no_wait:
            value = (<dict> properties).get(WAIT)
            e.waits = value is None or (<str> value).lower() != "false"
        e.queue = queue.state
        e.store_host = <void*> stored
        b.used += total
        b.count += 1
        return PUT_OK

    cdef bint skips(self, object name, bint tags, bint keys, bint unique, bint no_wait, int64_t delay):
        """A field of its own wins over the property of the same name."""
        return (
            (tags and name == TAGS) or (keys and name == KEYS) or (unique and name == UNIQ_KEY) or (no_wait and name == WAIT)
            or (delay != 0 and name == DELAY) or (self.property_crc and name == CRC32)
            or (PyUnicode_Check(name) and (<str> name).startswith(TRANSIENT))
        )


def month_of(int64_t now):
    """The local month around `now`, as [begin, end) in milliseconds."""
    import time

    local = time.localtime(now / 1000)
    begin = time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    year, month = (local.tm_year + 1, 1) if local.tm_mon == 12 else (local.tm_year, local.tm_mon + 1)
    return int(begin * 1000), int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1)) * 1000)
