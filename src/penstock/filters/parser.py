"""From the text of a filter to its tree: RocketMQ's grammar, its rules about operands, and our limits.

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { "=" comparison | "<>" comparison | IS [ NOT ] NULL }
    comparison  = unary { (">" | ">=" | "<" | "<=") unary
                        | [ NOT ] BETWEEN unary AND unary
                        | [ NOT ] IN "(" text { "," text } ")"
                        | [ NOT ] (CONTAINS | STARTSWITH | ENDSWITH) text }
    unary       = "+" unary | "-" unary | NOT unary | primary
    primary     = text | number | TRUE | FALSE | NULL | name | "(" or ")"

NOT binds closer than a comparison: ``NOT a = 1`` is ``(NOT a) = 1``. What follows a whole expression is not
looked at, its first word aside.
"""

from __future__ import annotations

import sys
from typing import TypeVar

from penstock.errors import InvalidFilter
from penstock.filters.javanumbers import Long, double, whole
from penstock.filters.limits import MAX_DEPTH, MAX_LENGTH, MAX_NAMES, MAX_TERMS, MAX_VALUES
from penstock.filters.tokens import Kind, Token, token_at
from penstock.filters.tree import (
    And,
    Condition,
    Constant,
    Equal,
    Expression,
    Flag,
    In,
    Negation,
    Not,
    Or,
    Order,
    Property,
    Search,
)
from penstock.filters.values import EvaluationFailed, compare

_Made = TypeVar("_Made", bound=Expression)

_NULL = Constant(None)
_ORDERS = (">", ">=", "<", "<=")
_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")


def parse(text: str) -> Expression:
    """The condition that a text is. InvalidFilter when it is none, or too large."""
    if len(text) > MAX_LENGTH:
        raise InvalidFilter(f"{len(text)} characters, at most {MAX_LENGTH} are taken")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidFilter("half a character, which no UTF-8 holds")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._token, self._next = token_at(text, 0)
        self._levels = 0
        self._terms = 0
        self._values = 0
        self._names: dict[str, Property] = {}

    # -- tokens -------------------------------------------------------------------------------------------

    def _advance(self) -> Token:
        token = self._token
        self._token, self._next = token_at(self._text, self._next)
        return token

    def _take(self, *words: str) -> bool:
        """Go on if the next word is one of these."""
        if not self._token.is_word(*words):
            return False
        self._advance()
        return True

    def _demand(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected(word)

    def _unexpected(self, wanted: str) -> InvalidFilter:
        return InvalidFilter(f"{wanted} expected, found {self._token}", self._token.at)

    def _string(self) -> str:
        if self._token.kind is not Kind.TEXT:
            raise self._unexpected("a text in single quotes")
        return self._advance().text

    # -- the grammar --------------------------------------------------------------------------------------

    def whole(self) -> Expression:
        return self._condition(self._or())

    def _or(self) -> Expression:
        left = self._and()
        if not self._token.is_word("OR"):
            return left
        parts = [self._condition(left)]
        while self._take("OR"):
            parts.append(self._condition(self._and()))
        return self._checked(Or(*parts))

    def _and(self) -> Expression:
        left = self._equality()
        if not self._token.is_word("AND"):
            return left
        parts = [self._condition(left)]
        while self._take("AND"):
            parts.append(self._condition(self._equality()))
        return self._checked(And(*parts))

    def _equality(self) -> Expression:
        left = self._comparison()
        while True:
            if self._take("="):
                left = self._term(self._equal(left, self._comparison()))
            elif self._take("<>"):
                left = self._term(Not(self._equal(left, self._comparison())))
            elif self._take("IS"):
                negative = self._take("NOT")
                self._demand("NULL")
                is_null = Equal(left, _NULL)
                left = self._term(Not(is_null) if negative else is_null)
            else:
                return left

    def _comparison(self) -> Expression:
        left = self._unary()
        while True:
            sign = self._token
            if self._take(*_ORDERS):
                left = self._term(self._order(sign.text, left, self._unary()))
                continue
            negative = self._take("NOT")
            word = self._token
            if self._take("BETWEEN"):
                left = self._term(self._between(left, negative=negative))
            elif self._take("IN"):
                left = self._term(self._in(left, negative=negative))
            elif self._take(*_SEARCHES):
                left = self._term(Search(word.text, left, self._string(), negative=negative))
            elif negative:
                raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            else:
                return left

    def _unary(self) -> Expression:
        self._levels += 1
        if self._levels > MAX_DEPTH:
            raise InvalidFilter(f"more than {MAX_DEPTH} levels deep", self._token.at)
        if self._take("+"):
            made = self._unary()
        elif self._take("-"):
            made = self._checked(Negation(self._unary()))
        elif self._take("NOT"):
            made = self._checked(Not(self._condition(self._unary())))
        else:
            made = self._primary()
        self._levels -= 1
        return made

    def _primary(self) -> Expression:
        if self._take("("):
            inner = self._or()
            self._demand(")")
            return inner
        token = self._token
        if token.kind is Kind.TEXT:
            return Constant(self._advance().text)
        if token.kind is Kind.INTEGER:
            return _integer(self._advance())
        if token.kind is Kind.DOUBLE:
            return _double(self._advance())
        if token.kind is Kind.NAME:
            return self._property(self._advance())
        if token.is_word("TRUE", "FALSE", "NULL"):
            self._advance()
            return _NULL if token.text == "NULL" else Constant(token.text == "TRUE")
        raise self._unexpected("a value, a property or a parenthesis")

    # -- parts and their rules ----------------------------------------------------------------------------

    def _property(self, token: Token) -> Property:
        name = sys.intern(token.text)
        if name not in self._names:
            if len(self._names) == MAX_NAMES:
                raise InvalidFilter(f"more than {MAX_NAMES} properties", token.at)
            self._names[name] = Property(name)
        return self._names[name]

    def _in(self, left: Expression, *, negative: bool) -> Condition:
        at = self._token.at
        self._demand("(")
        values = {self._string()}
        count = 1
        while self._take(","):
            values.add(self._string())
            count += 1
        self._demand(")")
        self._values += count
        if self._values > MAX_VALUES:
            raise InvalidFilter(f"more than {MAX_VALUES} texts in IN lists", at)
        if not isinstance(left, Property):
            raise InvalidFilter("only a property can be IN a list", at)
        return In(left, frozenset(values), negative=negative)

    def _between(self, value: Expression, *, negative: bool) -> Condition:
        at = self._token.at
        low = self._unary()
        self._demand("AND")
        high = self._unary()
        if negative:
            return Or(self._order("<", value, low), self._order(">", value, high))
        if isinstance(low, Constant) and isinstance(high, Constant):
            self._check_bounds(low, high, at)
        return And(self._order(">=", value, low), self._order("<=", value, high))

    def _check_bounds(self, low: Constant, high: Constant, at: int) -> None:
        if low.value is None or high.value is None:
            raise InvalidFilter("NULL is no bound", at)
        try:
            reversed_bounds = compare(high.value, low.value) < 0
        except EvaluationFailed as error:
            raise InvalidFilter(f"the bounds of BETWEEN: {error}", at) from None
        if reversed_bounds:
            raise InvalidFilter("the first bound of BETWEEN is above the second", at)

    def _order(self, sign: str, left: Expression, right: Expression) -> Condition:
        for operand in (left, right):
            number = isinstance(operand, Constant) and type(operand.value) in (int, Long, float)
            if operand.boolean or (isinstance(operand, Constant) and not number):
                raise InvalidFilter(f"{sign} compares numbers only", self._token.at)
        return Order(sign, left, right)

    def _equal(self, left: Expression, right: Expression) -> Condition:
        if isinstance(right, Constant) and _is_boolean(left) and not _is_boolean(right):
            raise InvalidFilter("a boolean never equals another constant", self._token.at)
        for operand in (left, right):
            if isinstance(operand, Constant) and operand.value is None:
                raise InvalidFilter("nothing equals NULL, use IS NULL", self._token.at)
        return Equal(left, right)

    def _condition(self, made: Expression) -> Expression:
        """The expression as something true or false."""
        if made.boolean or _is_boolean(made):
            return made
        if isinstance(made, Property):
            return self._term(Flag(made))
        raise InvalidFilter("the value here is not true or false", self._token.at)

    def _term(self, made: Condition) -> Condition:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise InvalidFilter(f"more than {MAX_TERMS} comparisons", self._token.at)
        return self._checked(made)

    def _checked(self, made: _Made) -> _Made:
        # A level of the text is up to four of the tree: an OR of ANDs of negated comparisons.
        if made.height > 4 * MAX_DEPTH:
            raise InvalidFilter(f"more than {MAX_DEPTH} levels deep", self._token.at)
        return made


def _is_boolean(made: Expression) -> bool:
    return isinstance(made, Constant) and (made.value is None or isinstance(made.value, bool))


def _integer(token: Token) -> Constant:
    try:
        value = whole(token.text.rstrip("lL"), 64)
    except ValueError:
        raise InvalidFilter(f"{token} is beyond 64 bits", token.at) from None
    return Constant(value if value < 1 << 31 else Long(value))


def _double(token: Token) -> Constant:
    value = double(token.text)
    # Zero too: RocketMQ takes the smallest positive number for the smallest one.
    if not 0.0 < value < float("inf"):
        raise InvalidFilter(f"{token} is not between 4.9e-324 and 1.8e308", token.at)
    return Constant(value)
