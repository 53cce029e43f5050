"""Frames of the remoting protocol on their way in: split, and their headers read (protocol section 1)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_SetItem
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from penstock._native.endian cimport get16, get32

cdef enum:
    RESPONSE = 1
    ONEWAY = 2
    OUR_VERSION = 479
    # Bodies from this size on are views of the received bytes instead of copies.
    VIEWED_BODY = 16384
    SCRATCH = 4096

LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)
VERSION = OUR_VERSION
cdef tuple _languages = LANGUAGES
cdef int _known_languages = len(LANGUAGES)
cdef str _java = "JAVA"
cdef str _python = "PYTHON"
cdef bytes _nothing = b""


cdef class Command:
    """A decoded frame, or one to be sent.

    ``fields`` (RocketMQ's extFields) is always a dict, ``body`` always bytes-like: a large decoded body is a
    view of the bytes that came off the network.
    """

    def __init__(
        self, int code, dict fields=None, body=b"", *, int flag=0, int opaque=0, remark=None,
        language="PYTHON", int version=OUR_VERSION, bint binary=False,
    ):
        self.code = code
        self.fields = {} if fields is None else fields
        self.body = body
        self.flag = flag
        self.opaque = opaque
        self.remark = remark
        self.language = language
        self.version = version
        self.binary = binary

    @staticmethod
    def request(int code, dict fields=None, body=b"", *, bint oneway=False):
        """A request of ours. The connection gives it its opaque when it is sent."""
        return blank(code, {} if fields is None else fields, body, ONEWAY if oneway else 0)

    def answer(self, int code=0, dict fields=None, body=b"", remark=None):
        """The answer to this request: its opaque and its serialization."""
        cdef Command made = blank(code, {} if fields is None else fields, body, RESPONSE)
        made.opaque = self.opaque
        made.remark = remark
        made.binary = self.binary
        return made

    @property
    def is_response(self):
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self):
        return self.flag & ONEWAY != 0

    def __eq__(self, other):
        if not isinstance(other, Command):
            return NotImplemented
        cdef Command that = other
        return (
            self.code == that.code and self.flag == that.flag and self.opaque == that.opaque
            and self.version == that.version and self.binary == that.binary and self.language == that.language
            and self.remark == that.remark and self.fields == that.fields and self.body == that.body
        )

    def __repr__(self):
        kind = "answer" if self.flag & RESPONSE else "oneway" if self.flag & ONEWAY else "request"
        remark = f" remark={self.remark!r}" if self.remark else ""
        return f"<{kind} {self.code} opaque={self.opaque} {self.fields}{remark} body={len(self.body)} bytes>"


cdef Command blank(int code, dict fields, object body, int flag):
    cdef Command made = Command.__new__(Command)
    made.code = code
    made.fields = fields
    made.body = body
    made.flag = flag
    made.opaque = 0
    made.remark = None
    made.language = _python
    made.version = OUR_VERSION
    made.binary = False
    return made


# -- JSON headers ------------------------------------------------------------------------------------------

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end


cdef inline void skip_blanks(Cursor* c) noexcept nogil:
    while c.at < c.end and (c.at[0] == b" " or c.at[0] == b"\n" or c.at[0] == b"\r" or c.at[0] == b"\t"):
        c.at += 1


cdef inline bint take_mark(Cursor* c, uint8_t mark) noexcept nogil:
    skip_blanks(c)
    if c.at < c.end and c.at[0] == mark:
        c.at += 1
        return True
    return False


cdef bint take_number(Cursor* c, int* value) noexcept nogil:
    """A plain integer of 32 bits. False for everything else, which the tolerant reader looks at."""
    cdef int64_t number = 0
    cdef bint negative = False
    cdef int digits = 0
    skip_blanks(c)
    if c.at < c.end and c.at[0] == b"-":
        negative = True
        c.at += 1
    if c.at + 1 < c.end and c.at[0] == b"0" and b"0" <= c.at[1] <= b"9":
        return False
    while c.at < c.end and b"0" <= c.at[0] <= b"9":
        number = number * 10 + (c.at[0] - c"0")
        digits += 1
        if digits > 10:
            return False
        c.at += 1
    if digits == 0 or c.at == c.end or c.at[0] == b"." or c.at[0] == b"e" or c.at[0] == b"E":
        return False
    if negative:
        number = -number
    if number < -2147483648 or number > 2147483647:
        return False
    value[0] = <int> number
    return True


cdef bint take_null(Cursor* c) noexcept nogil:
    skip_blanks(c)
    if c.end - c.at >= 4 and memcmp(c.at, b"null", 4) == 0:
        c.at += 4
        return True
    return False


cdef bint take_raw(Cursor* c, const uint8_t** start, Py_ssize_t* size, bint* escaped) noexcept nogil:
    """The bytes between two quotes, and whether a backslash is among them."""
    cdef const uint8_t* at
    skip_blanks(c)
    if c.at >= c.end or c.at[0] != b'"':
        return False
    at = c.at + 1
    start[0] = at
    escaped[0] = False
    while at < c.end and at[0] != b'"':
        if at[0] == b"\\":
            escaped[0] = True
            at += 1
        at += 1
    if at >= c.end:
        return False
    size[0] = at - start[0]
    c.at = at + 1
    return True


cdef inline int hex4(const uint8_t* at) noexcept nogil:
    cdef int value = 0
    cdef int i
    cdef uint8_t digit
    for i in range(4):
        digit = at[i]
        if b"0" <= digit <= b"9":
            digit -= c"0"
        elif b"a" <= digit <= b"f":
            digit -= c"a" - 10
        elif b"A" <= digit <= b"F":
            digit -= c"A" - 10
        else:
            return -1
        value = value * 16 + digit
    return value


cdef Py_ssize_t unescape(const uint8_t* text, Py_ssize_t size, uint8_t* out) noexcept nogil:
    """JSON escapes to UTF-8, which is never longer. -1 for an escape that is none, lone surrogates among them."""
    cdef const uint8_t* at = text
    cdef const uint8_t* end = text + size
    cdef uint8_t* to = out
    cdef uint8_t kind
    cdef int point, low
    while at < end:
        if at[0] != b"\\":
            to[0] = at[0]
            to += 1
            at += 1
            continue
        kind = at[1]
        at += 2
        if kind == b"u":
            if end - at < 4:
                return -1
            point = hex4(at)
            at += 4
            if point < 0 or 0xDC00 <= point <= 0xDFFF:
                return -1
            if 0xD800 <= point <= 0xDBFF:
                if end - at < 6 or at[0] != b"\\" or at[1] != b"u":
                    return -1
                low = hex4(at + 2)
                if low < 0xDC00 or low > 0xDFFF:
                    return -1
                point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
                at += 6
            if point < 0x80:
                to[0] = <uint8_t> point
                to += 1
            elif point < 0x800:
                to[0] = <uint8_t> (0xC0 | point >> 6)
                to[1] = <uint8_t> (0x80 | point & 0x3F)
                to += 2
            elif point < 0x10000:
                to[0] = <uint8_t> (0xE0 | point >> 12)
                to[1] = <uint8_t> (0x80 | point >> 6 & 0x3F)
                to[2] = <uint8_t> (0x80 | point & 0x3F)
                to += 3
            else:
                to[0] = <uint8_t> (0xF0 | point >> 18)
                to[1] = <uint8_t> (0x80 | point >> 12 & 0x3F)
                to[2] = <uint8_t> (0x80 | point >> 6 & 0x3F)
                to[3] = <uint8_t> (0x80 | point & 0x3F)
                to += 4
            continue
        if kind == b"n":
            kind = b"\n"
        elif kind == b"t":
            kind = b"\t"
        elif kind == b"r":
            kind = b"\r"
        elif kind == b"b":
            kind = 8
        elif kind == b"f":
            kind = 12
        elif kind != b'"' and kind != b"\\" and kind != b"/":
            return -1
        to[0] = kind
        to += 1
    return to - out


cdef object take_text(Cursor* c):
    """A string as an object, or None when there is none that is plain."""
    cdef const uint8_t* start = NULL
    cdef Py_ssize_t size = 0
    cdef bint escaped = False
    cdef uint8_t small[SCRATCH]
    cdef uint8_t* scratch = small
    if not take_raw(c, &start, &size, &escaped):
        return None
    if not escaped:
        return PyUnicode_DecodeUTF8(<const char*> start, size, NULL)
    if size > SCRATCH:
        scratch = <uint8_t*> malloc(size)
        if scratch == NULL:
            raise MemoryError
    try:
        size = unescape(start, size, scratch)
        return None if size < 0 else PyUnicode_DecodeUTF8(<const char*> scratch, size, NULL)
    finally:
        if scratch != small:
            free(scratch)


cdef dict take_fields(Cursor* c):
    """A flat object of strings, or None for any other value."""
    cdef dict fields = {}
    cdef object key, value
    if not take_mark(c, b"{"):
        return None
    if take_mark(c, b"}"):
        return fields
    while True:
        key = take_text(c)
        if key is None or not take_mark(c, b":"):
            return None
        value = take_text(c)
        if value is None:
            return None
        PyDict_SetItem(fields, key, value)
        if take_mark(c, b","):
            continue
        return fields if take_mark(c, b"}") else None


cdef inline bint named(const uint8_t* start, Py_ssize_t size, const char* name, Py_ssize_t length) noexcept nogil:
    return size == length and memcmp(start, name, length) == 0


cdef Command json_header(const uint8_t* header, Py_ssize_t length):
    """The header of a plain sender, or None: something about it needs the tolerant reader."""
    cdef Cursor c
    cdef Command made = blank(0, None, _nothing, 0)
    cdef const uint8_t* key = NULL
    cdef Py_ssize_t size = 0
    cdef bint escaped = False
    cdef bint has_code = False
    cdef object text
    made.language = _java
    made.version = 0
    c.at = header
    c.end = header + length
    if not take_mark(&c, b"{"):
        return None
    while True:
        if not take_raw(&c, &key, &size, &escaped) or escaped or not take_mark(&c, b":"):
            return None
        if named(key, size, b"code", 4):
            if not take_number(&c, &made.code):
                return None
            has_code = True
        elif named(key, size, b"extFields", 9):
            if take_null(&c):
                made.fields = None
            else:
                made.fields = take_fields(&c)
                if made.fields is None:
                    return None
        elif named(key, size, b"flag", 4):
            if not take_number(&c, &made.flag):
                return None
        elif named(key, size, b"opaque", 6):
            if not take_number(&c, &made.opaque):
                return None
        elif named(key, size, b"version", 7):
            if not take_number(&c, &made.version):
                return None
        elif named(key, size, b"language", 8):
            text = take_text(&c)
            if text is None:
                return None
            made.language = _java if text == _java else text
        elif named(key, size, b"remark", 6):
            if take_null(&c):
                made.remark = None
            else:
                made.remark = take_text(&c)
                if made.remark is None:
                    return None
        elif named(key, size, b"serializeTypeCurrentRPC", 23):
            if not take_raw(&c, &key, &size, &escaped):
                return None
        else:
            return None
        if take_mark(&c, b","):
            continue
        if not take_mark(&c, b"}"):
            return None
        skip_blanks(&c)
        if c.at != c.end or not has_code:
            return None
        if made.fields is None:
            made.fields = {}
        return made


# -- binary headers ----------------------------------------------------------------------------------------

cdef Command binary_header(const uint8_t* header, Py_ssize_t length):
    """Raises ValueError for anything that is no such header."""
    cdef const uint8_t* at = header
    cdef const uint8_t* end = header + length
    cdef const uint8_t* name
    cdef Command made
    cdef int64_t size, name_size
    if length < 21:
        raise ValueError(f"a binary header of {length} bytes")
    made = blank(get16(at), {}, _nothing, <int32_t> get32(at + 9))
    made.binary = True
    made.language = _languages[at[2]] if at[2] < _known_languages else <int> at[2]
    made.version = get16(at + 3)
    made.opaque = <int32_t> get32(at + 5)
    size = <int32_t> get32(at + 13)
    at += 17
    if size < 0 or size > end - at - 4:
        raise ValueError(f"a remark of {size} bytes with {end - at} left")
    if size:
        made.remark = PyUnicode_DecodeUTF8(<const char*> at, size, NULL)
    at += size
    size = <int32_t> get32(at)
    at += 4
    if size != end - at:
        raise ValueError(f"header fields of {size} bytes with {end - at} left")
    while at < end:
        name_size = get16(at) if end - at >= 2 else -1
        at += 2
        if name_size < 0 or name_size > end - at - 4:
            raise ValueError("the name of a header field is longer than the header")
        name = at
        at += name_size
        size = <int32_t> get32(at)
        at += 4
        if size < 0 or size > end - at:
            raise ValueError(f"a header field of {size} bytes with {end - at} left")
        # An empty value is Java's null.
        if size:
            PyDict_SetItem(
                made.fields,
                PyUnicode_DecodeUTF8(<const char*> name, name_size, NULL),
                PyUnicode_DecodeUTF8(<const char*> at, size, NULL),
            )
        at += size
    return made


# -- frames ------------------------------------------------------------------------------------------------

cdef Command read_frame(const uint8_t* frame, Py_ssize_t header, Py_ssize_t size, object tolerant):
    """The command of one whole frame whose lengths were checked, without its body."""
    cdef Command made
    if frame[4] == 0:
        made = json_header(frame + 8, header)
        if made is None:
            made = tolerant(PyBytes_FromStringAndSize(<const char*> frame + 8, header))
        return made
    if frame[4] == 1:
        return binary_header(frame + 8, header)
    raise ValueError(f"unknown serialize type {frame[4]}")


def take_frames(data, Py_ssize_t max_frame, Py_ssize_t max_header, tolerant):
    """The commands of all whole frames in ``data``, where the first unfinished one starts, and what is wrong there.

    ``tolerant`` reads JSON headers that are not plain: it gets the bytes and returns a Command or raises
    ValueError. Lengths beyond the limits are found before their bytes have arrived.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return split_frames(data, <const uint8_t*> view.buf, view.len, max_frame, max_header, tolerant)
    finally:
        PyBuffer_Release(&view)


cdef tuple split_frames(
    object data, const uint8_t* start, Py_ssize_t end, Py_ssize_t max_frame, Py_ssize_t max_header, object tolerant
):
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t size, header, body
    cdef const uint8_t* frame
    cdef Command made
    cdef list commands = []
    cdef object whole = None
    while end - at >= 4:
        frame = start + at
        size = <Py_ssize_t> <uint32_t> get32(frame)
        if size < 4 or size > max_frame - 4:
            if frame[0] == 0x16:
                return commands, at, "a TLS handshake on a port that speaks plain frames"
            return commands, at, f"a frame of {size} bytes"
        if end - at < 8:
            break
        header = <Py_ssize_t> (<uint32_t> get32(frame + 4) & 0xFFFFFF)
        if header > size - 4 or header > max_header:
            return commands, at, f"a header of {header} bytes in a frame of {size}"
        if end - at - 4 < size:
            break
        try:
            made = read_frame(frame, header, size, tolerant)
        except ValueError as error:  # UnicodeDecodeError is one too
            return commands, at, str(error)
        body = size - 4 - header
        if body >= VIEWED_BODY:
            if whole is None:
                whole = memoryview(data)
            made.body = whole[at + 8 + header : at + 4 + size]
        elif body:
            made.body = PyBytes_FromStringAndSize(<const char*> frame + 8 + header, body)
        commands.append(made)
        at += 4 + size
    return commands, at, None
