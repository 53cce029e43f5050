"""SQL92 filters over the property bytes of records: what `penstock.filters.tree` says, without an object per message."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE, PyBytes_FromStringAndSize
from libc.math cimport isnan, signbit
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from penstock._native.record cimport Span, next_property

cdef extern from *:
    """
    #include <string.h>
    """
    void* memmem(const void* haystack, size_t n, const void* needle, size_t m) noexcept nogil

cdef enum:  # kinds of nodes
    CONSTANT = 0
    PROPERTY = 1
    NEGATION = 2
    FLAG = 3
    NOT = 4
    AND = 5
    OR = 6
    EQUAL = 7
    ORDER = 8
    IN = 9
    SEARCH = 10

cdef enum:  # kinds of values
    NULL_VALUE = 0
    TEXT = 1
    INTEGER = 2
    LONG = 3
    DOUBLE = 4
    BOOLEAN = 5
    FAILED = 6

cdef enum:  # signs of ORDER, kinds of SEARCH
    ABOVE = 0
    ABOVE_OR_EQUAL = 1
    BELOW = 2
    BELOW_OR_EQUAL = 3
    CONTAINS = 0
    STARTS_WITH = 1
    ENDS_WITH = 2

cdef double* POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]
cdef int64_t EXACT = 9007199254740992


cdef inline void be_boolean(Value* value, bint truth) noexcept nogil:
    value.kind = BOOLEAN
    value.whole = truth


cdef class Program:
    """A filter as a table of nodes; a node comes behind its operands, the last one is the root.

    A node is `(kind, sign, negative, operands, texts, constant)`: `operands` are numbers of nodes, `texts` bytes (sorted by
    length and then by their bytes), `constant` a `(kind, value)` pair or the number of a property. What is not plain to read
    as a number goes to `read_whole(text, bits)` and `read_double(text)`, which raise ValueError.
    """

    def __cinit__(self, list nodes not None, list names not None, object read_whole, object read_double):
        cdef int32_t i, operand_count = 0, text_count = 0
        cdef Node* node
        self.read_whole = read_whole
        self.read_double = read_double
        self.kept = []
        for given in nodes:
            operand_count += <int32_t> len(given[3])
            text_count += <int32_t> len(given[4])
        self.name_count = <int32_t> len(names)
        self.nodes = <Node*> calloc(max(1, len(nodes)), sizeof(Node))
        self.operands = <int32_t*> calloc(max(1, operand_count), sizeof(int32_t))
        self.texts = <Span*> calloc(max(1, text_count), sizeof(Span))
        self.names = <Span*> calloc(max(1, self.name_count), sizeof(Span))
        self.found = <Span*> calloc(max(1, self.name_count), sizeof(Span))
        if self.nodes == NULL or self.operands == NULL or self.texts == NULL or self.names == NULL or self.found == NULL:
            raise MemoryError()
        self.root = <int32_t> len(nodes) - 1
        if self.root < 0:
            raise ValueError("a program has at least one node")
        for i in range(self.name_count):
            self.names[i] = self.keep(names[i])
        operand_count = text_count = 0
        for i in range(self.root + 1):
            kind, sign, negative, operands, texts, constant = nodes[i]
            node = &self.nodes[i]
            node.kind = kind
            node.sign = sign
            node.negative = negative
            node.first = operand_count
            node.count = <int32_t> len(operands)
            node.first_text = text_count
            node.text_count = <int32_t> len(texts)
            for operand in operands:
                if not 0 <= operand < i:
                    raise ValueError("a node comes behind its operands")
                self.operands[operand_count] = operand
                operand_count += 1
            for text in texts:
                self.texts[text_count] = self.keep(text)
                text_count += 1
            self.check(node)
            if node.kind == PROPERTY:
                if not 0 <= constant < self.name_count:
                    raise ValueError("no such property")
                node.first_text = constant
            elif node.kind == CONSTANT:
                self.set_constant(&node.constant, constant)

    cdef int check(self, const Node* node) except -1:
        cdef int needed = -1
        if node.kind in (CONSTANT, PROPERTY):
            needed = 0
        elif node.kind in (NEGATION, FLAG, NOT, IN, SEARCH):
            needed = 1
        elif node.kind in (EQUAL, ORDER):
            needed = 2
        elif node.kind not in (AND, OR):
            raise ValueError("no such kind of node")
        if needed >= 0 and node.count != needed:
            raise ValueError("a node with too many or too few operands")
        if node.kind == SEARCH and node.text_count != 1:
            raise ValueError("a search has one text")
        return 0

    cdef Span keep(self, bytes text):
        cdef Span span
        self.kept.append(text)
        span.at = <const uint8_t*> PyBytes_AS_STRING(text)
        span.length = <int32_t> PyBytes_GET_SIZE(text)
        return span

    cdef int set_constant(self, Value* value, object constant) except -1:
        value.kind = constant[0]
        if value.kind == TEXT:
            value.text = self.keep(constant[1])
        elif value.kind == DOUBLE:
            value.real = constant[1]
        elif value.kind in (INTEGER, LONG, BOOLEAN):
            value.whole = constant[1]
        return 0

    def __dealloc__(self):
        free(self.nodes)
        free(self.operands)
        free(self.texts)
        free(self.names)
        free(self.found)

    def matches(self, bytes properties not None):
        """Whether the filter is true of a property string."""
        return self.wants(<const uint8_t*> PyBytes_AS_STRING(properties), <int32_t> PyBytes_GET_SIZE(properties)) == 1

    def verdict(self, bytes properties not None):
        """'true', 'false', 'null' or 'error': for comparing with the plain evaluator."""
        cdef Value value
        self.look_up(<const uint8_t*> PyBytes_AS_STRING(properties), <int32_t> PyBytes_GET_SIZE(properties))
        self.evaluate(self.root, &value)
        if value.kind == BOOLEAN:
            return "true" if value.whole else "false"
        return "error" if value.kind == FAILED else "null"

    cdef int wants(self, const uint8_t* properties, int32_t length) except -1:
        cdef Value value
        self.look_up(properties, length)
        self.evaluate(self.root, &value)
        return 1 if value.kind == BOOLEAN and value.whole else 0

    cdef int look_up(self, const uint8_t* properties, int32_t length) except -1:
        """Find the properties that the filter names; the last of equal names counts, one without a value does not."""
        cdef int32_t at = 0, i
        cdef Span name, value
        for i in range(self.name_count):
            self.found[i].at = NULL
        while next_property(properties, length, &at, &name, &value):
            self.work += 1
            for i in range(self.name_count):
                if (
                    self.names[i].length == name.length and self.names[i].at[0] == name.at[0]
                    and memcmp(self.names[i].at, name.at, name.length) == 0
                ):
                    self.found[i] = value
                    break
        return 0

    cdef int evaluate(self, int32_t number, Value* out) except -1:
        cdef const Node* node = &self.nodes[number]
        cdef int32_t i
        cdef bint unknown = False
        self.work += 1
        if node.kind == CONSTANT:
            out[0] = node.constant
        elif node.kind == PROPERTY:
            out.text = self.found[node.first_text]
            out.kind = NULL_VALUE if out.text.at == NULL else TEXT
        elif node.kind == EQUAL:
            self.equal(node, out)
        elif node.kind == ORDER:
            self.order(node, out)
        elif node.kind == AND or node.kind == OR:
            for i in range(node.count):
                self.evaluate(self.operands[node.first + i], out)
                if out.kind == FAILED:
                    return 0
                if out.kind == NULL_VALUE:
                    unknown = True
                elif out.whole == (node.kind == OR):
                    return 0
            if unknown:
                out.kind = NULL_VALUE
            else:
                be_boolean(out, node.kind == AND)
        elif node.kind == SEARCH:
            self.search(node, out)
        else:
            self.evaluate(self.operands[node.first], out)
            if out.kind == FAILED or out.kind == NULL_VALUE:
                return 0
            if node.kind == NOT:
                out.whole = not out.whole
            elif node.kind == IN:
                be_boolean(out, self.listed(node, &out.text) != node.negative)
            elif node.kind == FLAG:
                be_boolean(out, False)
            elif out.kind == INTEGER or out.kind == LONG:
                out.whole = -out.whole
            elif out.kind == DOUBLE:
                out.real = -out.real
            else:
                out.kind = NULL_VALUE
        return 0

    cdef int both(self, const Node* node, Value* left, Value* right) except -1:
        self.evaluate(self.operands[node.first], left)
        if left.kind != FAILED:
            self.evaluate(self.operands[node.first + 1], right)
        return 0

    cdef int equal(self, const Node* node, Value* out) except -1:
        cdef Value left, right
        cdef int answer = 0
        self.both(node, &left, &right)
        if left.kind == FAILED or right.kind == FAILED:
            out.kind = FAILED
        elif left.kind == NULL_VALUE:
            be_boolean(out, True)
            if right.kind != NULL_VALUE:
                out.kind = NULL_VALUE
        elif right.kind == NULL_VALUE:
            be_boolean(out, False)
        elif self.compare(&left, &right, &answer):
            be_boolean(out, answer == 0)
        else:
            out.kind = FAILED
        return 0

    cdef int order(self, const Node* node, Value* out) except -1:
        cdef Value left, right
        cdef int answer = 0
        self.evaluate(self.operands[node.first], &left)
        if left.kind == FAILED or left.kind == NULL_VALUE:
            out.kind = left.kind
            return 0
        self.evaluate(self.operands[node.first + 1], &right)
        if right.kind == FAILED or right.kind == NULL_VALUE:
            out.kind = right.kind
            return 0
        if left.kind == TEXT and right.kind == TEXT and not (self.convert(&left, DOUBLE) and self.convert(&right, DOUBLE)):
            out.kind = FAILED
            return 0
        if not self.compare(&left, &right, &answer):
            out.kind = FAILED
        elif node.sign == ABOVE:
            be_boolean(out, answer > 0)
        elif node.sign == ABOVE_OR_EQUAL:
            be_boolean(out, answer >= 0)
        elif node.sign == BELOW:
            be_boolean(out, answer < 0)
        else:
            be_boolean(out, answer <= 0)
        return 0

    cdef int search(self, const Node* node, Value* out) except -1:
        cdef const Span* wanted = &self.texts[node.first_text]
        cdef bint found
        if wanted.length == 0:
            be_boolean(out, False)
            return 0
        self.evaluate(self.operands[node.first], out)
        if out.kind == FAILED:
            return 0
        if out.kind != TEXT:
            be_boolean(out, False)
            return 0
        self.work += out.text.length >> 2
        if wanted.length > out.text.length:
            found = False
        elif node.sign == CONTAINS:
            found = memmem(out.text.at, out.text.length, wanted.at, wanted.length) != NULL
        elif node.sign == STARTS_WITH:
            found = memcmp(out.text.at, wanted.at, wanted.length) == 0
        else:
            found = memcmp(out.text.at + out.text.length - wanted.length, wanted.at, wanted.length) == 0
        be_boolean(out, found != node.negative)
        return 0

    cdef bint listed(self, const Node* node, const Span* text) noexcept:
        cdef int32_t low = node.first_text, high = node.first_text + node.text_count, middle
        cdef int order
        while low < high:
            middle = (low + high) >> 1
            order = self.texts[middle].length - text.length
            if order == 0:
                order = memcmp(self.texts[middle].at, text.at, text.length)
            if order == 0:
                return True
            if order < 0:
                low = middle + 1
            else:
                high = middle
        return False

    cdef int compare(self, Value* left, Value* right, int* answer) except -1:
        """1 with -1, 0 or 1 in `answer`; 0 when the two cannot be compared. May turn a text into a number."""
        if left.kind != right.kind:
            if left.kind == TEXT:
                if not self.convert(left, right.kind):
                    return 0
            elif right.kind == TEXT:
                if left.kind == BOOLEAN or not self.convert(right, left.kind):
                    return 0
            elif left.kind == BOOLEAN or right.kind == BOOLEAN:
                answer[0] = -1
                return 1
            elif left.kind == DOUBLE:
                right.real = <double> right.whole
                right.kind = DOUBLE
            elif right.kind == DOUBLE:
                left.real = <double> left.whole
                left.kind = DOUBLE
        if left.kind == TEXT:
            answer[0] = left.text.length != right.text.length or memcmp(left.text.at, right.text.at, left.text.length) != 0
        elif left.kind == DOUBLE:
            answer[0] = compare_doubles(left.real, right.real)
        else:
            answer[0] = (left.whole > right.whole) - (left.whole < right.whole)
        return 1

    cdef int convert(self, Value* text, int kind) except -1:
        """Turn a text into a value of another kind; 0 when Java would not."""
        cdef int done
        self.work += text.text.length >> 3
        if kind == BOOLEAN:
            be_boolean(text, is_true(&text.text))
            return 1
        if kind == DOUBLE:
            done = plain_double(&text.text, &text.real)
        else:
            done = plain_whole(&text.text, &text.whole, kind == INTEGER)
        if done < 0:
            return self.ask(text, kind)
        text.kind = kind
        return done

    cdef int ask(self, Value* text, int kind) except -1:
        cdef str given = PyBytes_FromStringAndSize(<const char*> text.text.at, text.text.length).decode("utf-8", "replace")
        try:
            if kind == DOUBLE:
                text.real = self.read_double(given)
            else:
                text.whole = self.read_whole(given, 32 if kind == INTEGER else 64)
        except ValueError:
            return 0
        text.kind = kind
        return 1


cdef bint is_true(const Span* text) noexcept nogil:
    return (
        text.length == 4 and text.at[0] | 32 == c"t" and text.at[1] | 32 == c"r" and text.at[2] | 32 == c"u"
        and text.at[3] | 32 == c"e"
    )


cdef int compare_doubles(double left, double right) noexcept nogil:
    """NaN equals itself and is above everything, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if isnan(left) or isnan(right):
        return (isnan(left) != 0) - (isnan(right) != 0)
    if left == 0.0:
        return (signbit(right) != 0) - (signbit(left) != 0)
    return 0


cdef int plain_whole(const Span* text, int64_t* out, bint short_) noexcept nogil:
    """1: a number, 0: none, or one that is too large, -1: Python has to look."""
    cdef int32_t i = 0
    cdef bint minus
    cdef int64_t value = 0
    cdef uint8_t c
    if text.length == 0:
        return 0
    minus = text.at[0] == c"-"
    if minus or text.at[0] == c"+":
        i = 1
    if i == text.length:
        return 0
    if text.length - i > 18:
        return -1
    while i < text.length:
        c = text.at[i]
        if c >= 128:
            return -1
        if not c"0" <= c <= c"9":
            return 0
        value = value * 10 + (c - c"0")
        i += 1
    if minus:
        value = -value
    if short_ and not -2147483648 <= value <= 2147483647:
        return 0
    out[0] = value
    return 1


cdef int plain_double(const Span* text, double* out) noexcept nogil:
    """1: a number, -1: Python has to look. Only what is exact without rounding twice is read here."""
    cdef const uint8_t* p = text.at
    cdef const uint8_t* end = p + text.length
    cdef int64_t mantissa = 0
    cdef int exponent = 0, given = 0, digits = 0
    cdef bint minus = False, minus_exponent = False, point = False
    cdef uint8_t c
    if p < end and (p[0] == c"-" or p[0] == c"+"):
        minus = p[0] == c"-"
        p += 1
    while p < end:
        c = p[0]
        if c == c"." and not point:
            point = True
        elif c"0" <= c <= c"9":
            digits += 1
            if mantissa > EXACT:
                return -1
            mantissa = mantissa * 10 + (c - c"0")
            if point:
                exponent -= 1
        else:
            break
        p += 1
    if digits == 0 or mantissa > EXACT:
        return -1
    if p < end and p[0] | 32 == c"e":
        p += 1
        if p < end and (p[0] == c"-" or p[0] == c"+"):
            minus_exponent = p[0] == c"-"
            p += 1
        if p == end:
            return -1
        while p < end and c"0" <= p[0] <= c"9" and given < 1000:
            given = given * 10 + (p[0] - c"0")
            p += 1
        exponent += -given if minus_exponent else given
    if p != end or not -22 <= exponent <= 22:
        return -1
    out[0] = <double> mantissa / POWERS[-exponent] if exponent < 0 else <double> mantissa * POWERS[exponent]
    if minus:
        out[0] = -out[0]
    return 1
