"""A row that is to become a record: its columns, and what can become of it."""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp

from penstock._native.record cimport Span

cdef enum:
    C_TOPIC = 0
    C_BODY = 1
    C_KEYS = 2
    C_TAGS = 3
    C_PROPERTIES = 4
    C_QUEUE_ID = 5
    C_ORDER_KEY = 6
    C_UNIQUE_KEY = 7
    C_FLAG = 8
    C_SYS_FLAG = 9
    C_BORN = 10
    C_DELAY = 11
    C_DELIVER_AT = 12
    COLUMN_COUNT = 13
    MAX_QUEUE = 65536
    KEPT_FLAGS = 0x703  # compression, its kind, and that several tags are given: what is said of the body and tags

cdef enum:
    S_DONE = 0
    S_NEED_QUEUE = 1
    S_SPECIAL = 2
    S_NO_TOPIC = 3
    S_LONG_BODY = 4
    S_LONG_PROPERTIES = 5
    S_LONG_RECORD = 6
    S_SEPARATOR = 7
    S_BAD_QUEUE = 8
    S_NO_MEMORY = 9

cdef inline bint named(Span name, const char* text, int32_t n) noexcept nogil:
    return name.length == n and memcmp(name.at, text, n) == 0


cdef inline bint asks_for_more(Span name) noexcept nogil:
    """Whether a property makes the store do more than keep the message: such rows are judged one by one."""
    if name.length < 5 or name.length > 20:
        return False
    if name.at[0] == c"D":
        return named(name, b"DELAY", 5)
    if name.at[0] == c"T":
        return named(name, b"TIMER_DELAY_SEC", 15) or named(name, b"TIMER_DELAY_MS", 14) or named(name, b"TIMER_DELIVER_MS", 16)
    if name.at[0] == c"I":
        return named(name, b"INNER_NUM", 9) or named(name, b"INNER_MULTI_DISPATCH", 20)
    return False


cdef inline bint never_stored(Span name) noexcept nogil:
    return (name.length >= 16 and memcmp(name.at, b"__RMQ.TRANSIENT.", 16) == 0) or named(name, b"__CRC32#", 8)
