"""Frames of the remoting protocol on their way out (protocol section 1).

JSON headers are compact, with the fields in RocketMQ's order: Go's client reads some of them as text.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from penstock._native.endian cimport put16, put32
from penstock._native.wire cimport Command

from penstock._native.wire import LANGUAGES, VERSION

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    RESPONSE = 1
    ONEWAY = 2
    HEAD = 8

cdef dict _language_codes = {name: code for code, name in enumerate(LANGUAGES)}
cdef int _version = VERSION

# One buffer for all: frames are made under the interpreter lock, one at a time.
cdef uint8_t* _room = NULL
cdef Py_ssize_t _capacity = 0


cdef uint8_t* room(Py_ssize_t used, Py_ssize_t more) except NULL:
    """The buffer, with space for ``more`` bytes behind the ``used`` ones."""
    global _room, _capacity
    cdef uint8_t* grown
    cdef Py_ssize_t wanted
    if used + more > _capacity:
        wanted = (used + more) * 2 + 4096
        grown = <uint8_t*> realloc(_room, wanted)
        if grown == NULL:
            raise MemoryError
        _room = grown
        _capacity = wanted
    return _room


cdef Py_ssize_t put_raw(Py_ssize_t at, const char* text, Py_ssize_t size) except -1:
    memcpy(room(at, size) + at, text, size)
    return at + size


cdef Py_ssize_t put_number(Py_ssize_t at, int64_t number) except -1:
    cdef uint8_t digits[24]
    cdef int count = 0
    cdef uint8_t* to = room(at, 24) + at
    cdef unsigned long long rest
    if number < 0:
        to[0] = b"-"
        to += 1
        at += 1
        rest = <unsigned long long> 0 - <unsigned long long> number
    else:
        rest = <unsigned long long> number
    while True:
        digits[count] = <uint8_t> (c"0" + rest % 10)
        rest //= 10
        count += 1
        if rest == 0:
            break
    at += count
    while count:
        count -= 1
        to[0] = digits[count]
        to += 1
    return at


cdef object plain(object text):
    """Text that UTF-8 can carry: what it can't (half a surrogate pair) becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


cdef const char* utf8(object text, Py_ssize_t* size, list keep) except NULL:
    """The bytes of a string. ``keep`` holds what must live as long as they are used."""
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError:
        text = plain(text)
        keep.append(text)
        return PyUnicode_AsUTF8AndSize(text, size)


cdef Py_ssize_t put_quoted(Py_ssize_t at, const char* text, Py_ssize_t size) except -1:
    """A JSON string."""
    cdef uint8_t* to = room(at, size * 6 + 2) + at
    cdef uint8_t* start = to
    cdef const uint8_t* source = <const uint8_t*> text
    cdef Py_ssize_t i
    cdef uint8_t c, short_form
    to[0] = b'"'
    to += 1
    for i in range(size):
        c = source[i]
        if c >= 0x20 and c != b'"' and c != b"\\":
            to[0] = c
            to += 1
            continue
        to[0] = b"\\"
        short_form = 0
        if c == b'"' or c == b"\\":
            short_form = c
        elif c == 10:
            short_form = b"n"
        elif c == 13:
            short_form = b"r"
        elif c == 9:
            short_form = b"t"
        elif c == 8:
            short_form = b"b"
        elif c == 12:
            short_form = b"f"
        if short_form:
            to[1] = short_form
            to += 2
        else:
            to[1] = b"u"
            to[2] = b"0"
            to[3] = b"0"
            to[4] = c"0" + (c >> 4)
            to[5] = (c"0" if (c & 15) < 10 else c"a" - 10) + (c & 15)
            to += 6
    to[0] = b'"'
    return at + (to + 1 - start)


cdef Py_ssize_t json_header(Command command, int opaque, Py_ssize_t at) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* text
    cdef bint first = True
    cdef list keep = []
    at = put_raw(at, b'{"code":', 8)
    at = put_number(at, command.code)
    at = put_raw(at, b',"extFields":{', 14)
    for key, value in command.fields.items():
        if not first:
            at = put_raw(at, b",", 1)
        first = False
        text = utf8(key, &size, keep)
        at = put_quoted(at, text, size)
        at = put_raw(at, b":", 1)
        text = utf8(value, &size, keep)
        at = put_quoted(at, text, size)
    at = put_raw(at, b'},"flag":', 9)
    at = put_number(at, command.flag)
    at = put_raw(at, b',"language":', 12)
    text = utf8(command.language if type(command.language) is str else "OTHER", &size, keep)
    at = put_quoted(at, text, size)
    return json_tail(at, opaque, command.remark, command.version, keep)


cdef Py_ssize_t json_tail(Py_ssize_t at, int opaque, object remark, int version, list keep) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* text
    at = put_raw(at, b',"opaque":', 10)
    at = put_number(at, opaque)
    if remark is not None:
        at = put_raw(at, b',"remark":', 10)
        text = utf8(remark, &size, keep)
        at = put_quoted(at, text, size)
    at = put_raw(at, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
    at = put_number(at, version)
    return put_raw(at, b"}", 1)


cdef Py_ssize_t binary_field(Py_ssize_t at, object key, object value) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* text
    cdef list keep = []
    text = utf8(key, &size, keep)
    if size > 32767:
        raise ValueError(f"a header field with a name of {size} bytes")
    put16(room(at, 2) + at, <short> size)
    at = put_raw(at + 2, text, size)
    text = utf8(value, &size, keep)
    put32(room(at, 4) + at, <int> size)
    return put_raw(at + 4, text, size)


cdef Py_ssize_t binary_start(
    Py_ssize_t at, int code, int language, int version, int opaque, int flag, object remark
) except -1:
    """Everything up to the length of the fields, for which four bytes are left open."""
    cdef uint8_t* to = room(at, 21) + at
    cdef Py_ssize_t size = 0
    cdef const char* text = NULL
    cdef list keep = []
    if remark is not None:
        text = utf8(remark, &size, keep)
        to = room(at, 21 + size) + at
    # 16 bits are all this header has: RocketMQ cuts a larger code or version the same way (protocol 1.3).
    put16(to, <short> code)
    to[2] = <uint8_t> language
    put16(to + 3, <short> version)
    put32(to + 5, opaque)
    put32(to + 9, flag)
    put32(to + 13, <int> size)
    if size:
        memcpy(to + 17, text, size)
    return at + 21 + size


cdef Py_ssize_t binary_header(Command command, int opaque, Py_ssize_t at) except -1:
    cdef object language = command.language
    cdef int number = language if type(language) is int else _language_codes.get(language, 7)
    cdef Py_ssize_t start
    at = binary_start(at, command.code, number, command.version, opaque, command.flag, command.remark)
    start = at
    for key, value in command.fields.items():
        at = binary_field(at, key, value)
    put32(room(at, 0) + start - 4, <int> (at - start))
    return at


cdef bytes finish(Py_ssize_t at, bint binary, Py_ssize_t body_size, object body):
    """Fill in the two lengths and copy the frame out; with its body, if that is not written separately."""
    cdef Py_ssize_t header = at - HEAD
    cdef uint8_t* start = room(at, 0)
    if header > 0xFFFFFF:
        raise ValueError(f"a header of {header} bytes")
    put32(start, <int> (4 + header + body_size))
    put32(start + 4, <int> (header | (1 << 24 if binary else 0)))
    if body is None:
        return PyBytes_FromStringAndSize(<const char*> start, at)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, at + body_size)
    cdef const uint8_t[::1] view
    memcpy(PyBytes_AS_STRING(made), start, at)
    if type(body) is bytes:
        memcpy(PyBytes_AS_STRING(made) + at, PyBytes_AS_STRING(body), body_size)
    else:
        view = body
        memcpy(PyBytes_AS_STRING(made) + at, &view[0], body_size)
    return made


cdef bytes encode_with(Command command, int opaque, Py_ssize_t body_size, object body):
    cdef Py_ssize_t at
    room(0, HEAD)
    at = binary_header(command, opaque, HEAD) if command.binary else json_header(command, opaque, HEAD)
    return finish(at, command.binary, body_size, body)


def encode(Command command not None, opaque=None):
    """The whole frame with its four length bytes. ``opaque`` replaces the command's own."""
    cdef Py_ssize_t size = len(command.body)
    return encode_with(command, command.opaque if opaque is None else opaque, size, command.body if size else None)


def encode_head(Command command not None, Py_ssize_t body_size, opaque=None):
    """The frame up to its body, for a body of that size which is written separately."""
    return encode_with(command, command.opaque if opaque is None else opaque, body_size, None)


# -- the answers that go out most --------------------------------------------------------------------------

cdef Py_ssize_t json_answer_start(Py_ssize_t at, int code) except -1:
    at = put_raw(at, b'{"code":', 8)
    at = put_number(at, code)
    return put_raw(at, b',"extFields":{', 14)


cdef Py_ssize_t number_field(Py_ssize_t at, bint binary, const char* name, Py_ssize_t size, int64_t number) except -1:
    """``"name":"number"``. Names are given without quotes."""
    cdef Py_ssize_t length_at
    if binary:
        put16(room(at, 2) + at, <short> size)
        length_at = put_raw(at + 2, name, size)
        room(length_at, 28)
        at = put_number(length_at + 4, number)
        put32(room(at, 0) + length_at, <int> (at - length_at - 4))
        return at
    at = put_raw(at, b'"', 1)
    at = put_raw(at, name, size)
    at = put_raw(at, b'":"', 3)
    at = put_number(at, number)
    return put_raw(at, b'",', 2)


def pull_answer(
    int opaque, bint binary, int code, remark, int64_t next_offset, int64_t min_offset, int64_t max_offset,
    int64_t suggested_broker, int topic_flag, int group_flag, Py_ssize_t body_size,
):
    """The frame of a pull's answer up to its body (protocol 5.4)."""
    cdef Py_ssize_t at, start
    cdef list keep = []
    room(0, 512)
    if binary:
        at = binary_start(HEAD, code, 3, _version, opaque, RESPONSE, remark)
        start = at
    else:
        at = json_answer_start(HEAD, code)
        start = 0
    at = number_field(at, binary, b"groupSysFlag", 12, group_flag)
    at = number_field(at, binary, b"maxOffset", 9, max_offset)
    at = number_field(at, binary, b"minOffset", 9, min_offset)
    at = number_field(at, binary, b"nextBeginOffset", 15, next_offset)
    at = number_field(at, binary, b"suggestWhichBrokerId", 20, suggested_broker)
    at = number_field(at, binary, b"topicSysFlag", 12, topic_flag)
    if binary:
        put32(room(at, 0) + start - 4, <int> (at - start))
    else:
        at = put_raw(at - 1, b'},"flag":1,"language":"PYTHON"', 30)
        at = json_tail(at, opaque, remark, _version, keep)
    return finish(at, binary, body_size, None)


cdef Py_ssize_t text_field(Py_ssize_t at, bint binary, str name, object value) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* text
    cdef list keep = []
    if binary:
        return binary_field(at, name, value)
    text = utf8(name, &size, keep)
    at = put_quoted(at, text, size)
    at = put_raw(at, b":", 1)
    text = utf8(value, &size, keep)
    at = put_quoted(at, text, size)
    return put_raw(at, b",", 1)


def send_answer(
    int opaque, bint binary, int code, remark, str region, bint trace_on, str message_id, int queue_id,
    int64_t queue_offset, transaction_id,
):
    """The whole frame of a send's answer (protocol 3.1). ``transaction_id`` may be None."""
    cdef Py_ssize_t at, start
    cdef list keep = []
    room(0, 512)
    if binary:
        at = binary_start(HEAD, code, 3, _version, opaque, RESPONSE, remark)
        start = at
    else:
        at = json_answer_start(HEAD, code)
        start = 0
    at = text_field(at, binary, "MSG_REGION", region)
    at = text_field(at, binary, "TRACE_ON", "true" if trace_on else "false")
    at = text_field(at, binary, "msgId", message_id)
    at = number_field(at, binary, b"queueId", 7, queue_id)
    at = number_field(at, binary, b"queueOffset", 11, queue_offset)
    if transaction_id is not None:
        at = text_field(at, binary, "transactionId", transaction_id)
    if binary:
        put32(room(at, 0) + start - 4, <int> (at - start))
    else:
        at = put_raw(at - 1, b'},"flag":1,"language":"PYTHON"', 30)
        at = json_tail(at, opaque, remark, _version, keep)
    return finish(at, binary, 0, None)


def plain_answers(list requests not None):
    """The whole frames of answers that say nothing but yes, one behind the other; one-way requests get none."""
    cdef Py_ssize_t at = 0, start, header
    cdef Command request
    for request in requests:
        if request.flag & ONEWAY:
            continue
        start = at
        room(at, 512)
        if request.binary:
            at = binary_start(at + HEAD, 0, 3, _version, request.opaque, RESPONSE, None)
            put32(room(at, 0) + at - 4, 0)
        else:
            at = json_answer_start(at + HEAD, 0)
            at = put_raw(at, b'},"flag":1,"language":"PYTHON"', 30)
            at = json_tail(at, request.opaque, None, _version, None)
        header = at - start - HEAD
        put32(room(at, 0) + start, <int> (4 + header))
        put32(room(at, 0) + start + 4, <int> (header | (1 << 24 if request.binary else 0)))
    return PyBytes_FromStringAndSize(<const char*> room(0, 0), at) if at else b""
