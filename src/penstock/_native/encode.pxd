from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from penstock._native.queue cimport Queue, QueueState

cdef enum:  # what became of a message; the first ones are PutMessageStatus names (spec 7.5), see encode.STATUSES
    PUT_OK = 0
    MESSAGE_ILLEGAL = 1
    PROPERTIES_SIZE_EXCEEDED = 2
    FLUSH_DISK_TIMEOUT = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    OS_PAGE_CACHE_BUSY = 6
    UNKNOWN_ERROR = 7
    # Not statuses: the caller has something to do first.
    NEED_HOOK = 32
    NEED_ROLL = 33
    NEED_LOCK = 34

cdef enum:  # the fields of a message, in the order of FIELDS
    F_TOPIC = 0
    F_BODY = 1
    F_TAGS = 2
    F_KEYS = 3
    F_QUEUE_ID = 4
    F_PROPERTIES = 5
    F_UNIQUE_KEY = 6
    F_FLAG = 7
    F_SYS_FLAG = 8
    F_BORN_TIMESTAMP = 9
    F_BORN_HOST = 10
    F_STORE_HOST = 11
    F_RECONSUME = 12
    F_PREPARED = 13
    F_DELAY_LEVEL = 14
    F_WAIT = 15
    F_RAW = 16
    FIELD_COUNT = 17

cdef int find_slots(object message_type, Py_ssize_t* slots) except -1

cdef inline object field(object message, Py_ssize_t slot):
    cdef PyObject* value = (<PyObject**> (<char*> <PyObject*> message + slot))[0]
    return <object> value if value != NULL else None

cdef inline bint plain(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """True if text has neither of the two separators of the property string."""
    cdef Py_ssize_t i
    for i in range(n):
        if p[i] == 1 or p[i] == 2:
            return False
    return True

cdef inline uint8_t* put_pair(uint8_t* p, const char* name, Py_ssize_t n, const char* value, Py_ssize_t v) noexcept nogil:
    """A property; where the next one goes."""
    memcpy(p, name, n)
    p[n] = 1
    memcpy(p + n + 1, value, v)
    p[n + 1 + v] = 2
    return p + n + v + 2

cdef inline uint8_t* put_hex(uint8_t* p, uint32_t value, int digits) noexcept nogil:
    """Upper-case digits; where the next ones go."""
    cdef int i
    cdef uint32_t digit
    for i in range(digits):
        digit = value & 15
        p[digits - 1 - i] = <uint8_t> (48 + digit if digit < 10 else 55 + digit)
        value >>= 4
    return p + digits

cdef struct Encoded:
    int64_t at               # in the buffer
    int32_t size
    int32_t messages         # queue offsets it takes
    int32_t store_timestamp_at
    bint takes_offset        # NOT and COMMIT types have a queue offset, the others store 0
    bint waits
    QueueState* queue
    void* store_host         # borrowed bytes object; the encoder keeps it
    int64_t queue_offset     # from here on filled in by the append
    int64_t physical_offset
    int64_t store_timestamp

cdef struct Buffer:
    uint8_t* data
    int64_t used
    int64_t capacity
    Encoded* records
    int32_t count
    int32_t record_capacity
    Buffer* next

cdef struct Item:  # a message of a client's batch, where it lies
    int32_t flag
    const uint8_t* body
    int64_t body_length
    const uint8_t* properties
    int64_t properties_length

cdef bint buffer_reserve(Buffer* b, int64_t more) noexcept nogil

cdef class Encoder:
    cdef object message_type
    cdef Py_ssize_t slots[FIELD_COUNT]
    cdef object find_queue            # (topic, queue id) -> Queue, or None for an illegal name
    cdef object parse_host
    cdef dict topics                  # topic -> [Queue or None by queue id]
    cdef object last_topic            # the topic of the last message, and its queues
    cdef list last_queues
    cdef dict hosts
    cdef bytes own_host
    cdef public int64_t max_message_size
    cdef public bint property_crc
    cdef public bint generate_unique_key
    cdef public bint hooks            # messages with further properties go through Python first
    cdef uint8_t unique[32]
    cdef int64_t month_start
    cdef int64_t month_end
    cdef int64_t unique_ms
    cdef int32_t unique_counter
    cdef readonly int64_t forgets     # how often the queues were forgotten
    cdef readonly str reason
    cdef public int64_t max_record_size
    cdef int next_unique(self, int64_t now) except -1
    cdef bytes host(self, object text)
    cdef Queue queue(self, object topic, object queue_id)
    cdef int refuse(self, int status, str reason) except -1
    cdef bint skips(self, object name, bint tags, bint keys, bint unique, bint no_wait, int64_t delay)
    cdef int encode(self, object message, Buffer* b, int64_t now, bint hooked) except -1
    cdef int encode_item(self, object message, const Item* item, Buffer* b, int64_t now) except -1
    cdef bint encode_alike(self, const Item* item, Buffer* b) noexcept
    cdef Queue queue_of(self, object message)
    cdef int encode_checked(
        self, object message, Queue queue, const uint8_t* body_at, Py_ssize_t body_length, const Item* item, Buffer* b, int64_t now
    ) except -1
    cdef int encode_fields(
        self, object message, Queue queue, const uint8_t* body_at, Py_ssize_t body_length, const Item* item, Buffer* b, int64_t now
    ) except -1
