"""The parts of a parsed filter, each of which evaluates itself over a map of properties.

The plain form of filters: what each means can be read here. The broker runs the same as a ``Program``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from penstock.filters.values import EvaluationFailed, Value, compare, negated, numbers

__all__ = ["EvaluationFailed", "Value"]

Properties = Mapping[str, str]


class Expression(ABC):
    """Anything with a value. ``height`` counts the levels below, ``boolean`` tells that it is a condition."""

    __slots__ = ("height", "operands")
    boolean: ClassVar[bool] = False

    def __init__(self, *operands: Expression) -> None:
        self.operands = operands
        self.height: int = 1 + max((operand.height for operand in operands), default=0)

    @abstractmethod
    def evaluate(self, properties: Properties) -> Value:
        """The value for a message; EvaluationFailed when there is none."""


class Constant(Expression):
    """A literal. TRUE, FALSE and NULL are conditions too."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value

    def evaluate(self, properties: Properties) -> Value:
        return self.value


class Property(Expression):
    """A property of the message: a text, or NULL when it has none of this name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def evaluate(self, properties: Properties) -> Value:
        return properties.get(self.name)


class Negation(Expression):
    """A minus sign. Texts have no negative: NULL, also for one that reads as a number."""

    __slots__ = ()

    def evaluate(self, properties: Properties) -> Value:
        return negated(self.operands[0].evaluate(properties))


class Condition(Expression):
    """What is true, false, or unknown (None)."""

    __slots__ = ()
    boolean = True

    @abstractmethod
    def evaluate(self, properties: Properties) -> bool | None:
        """Whether it holds for a message; None when that is unknown."""


class Flag(Condition):
    """A property that stands alone. It is a text, never a boolean: false, or unknown when it is missing."""

    __slots__ = ()

    def evaluate(self, properties: Properties) -> bool | None:
        return None if self.operands[0].evaluate(properties) is None else False


class Not(Condition):
    """Unknown stays unknown."""

    __slots__ = ()

    def evaluate(self, properties: Properties) -> bool | None:
        value = self.operands[0].evaluate(properties)
        return None if value is None else not value


class And(Condition):
    """False at the first false, whatever stands behind it; else unknown if one is."""

    __slots__ = ()

    def evaluate(self, properties: Properties) -> bool | None:
        known: bool | None = True
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is None:
                known = None
            elif not value:
                return False
        return known


class Or(Condition):
    """True at the first true, whatever stands behind it; else unknown if one is."""

    __slots__ = ()

    def evaluate(self, properties: Properties) -> bool | None:
        known: bool | None = False
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is None:
                known = None
            elif value:
                return True
        return known


class Equal(Condition):
    """NULL on the left of a value makes it unknown, on the right false; two NULL are equal."""

    __slots__ = ()

    def evaluate(self, properties: Properties) -> bool | None:
        left, right = (operand.evaluate(properties) for operand in self.operands)
        if left is None:
            return True if right is None else None
        if right is None:
            return False
        return compare(left, right) == 0


class Order(Condition):
    """One of ``> >= < <=``, which are for numbers: two texts are compared as numbers or not at all."""

    __slots__ = ("sign",)
    _ANSWERS: ClassVar[dict[str, frozenset[int]]] = {
        ">": frozenset({1}),
        ">=": frozenset({0, 1}),
        "<": frozenset({-1}),
        "<=": frozenset({-1, 0}),
    }

    def __init__(self, sign: str, left: Expression, right: Expression) -> None:
        super().__init__(left, right)
        self.sign = sign

    def evaluate(self, properties: Properties) -> bool | None:
        left = self.operands[0].evaluate(properties)
        if left is None:
            return None
        right = self.operands[1].evaluate(properties)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = numbers(left, right)
        return compare(left, right) in self._ANSWERS[self.sign]


class In(Condition):
    """Whether a property is one of some texts; unknown when it is missing."""

    __slots__ = ("negative", "values")

    def __init__(self, operand: Expression, values: frozenset[str], *, negative: bool) -> None:
        super().__init__(operand)
        self.values = values
        self.negative = negative

    def evaluate(self, properties: Properties) -> bool | None:
        value = self.operands[0].evaluate(properties)
        if value is None:
            return None
        return (value in self.values) is not self.negative


class Search(Condition):
    """CONTAINS, STARTSWITH, ENDSWITH, with or without NOT: false of anything but a text, never unknown.

    An empty text is found nowhere, and also not not found.
    """

    __slots__ = ("kind", "negative", "wanted")

    def __init__(self, kind: str, operand: Expression, wanted: str, *, negative: bool) -> None:
        super().__init__(operand)
        self.kind = kind
        self.wanted = wanted
        self.negative = negative

    def evaluate(self, properties: Properties) -> bool | None:
        if not self.wanted:
            return False
        value = self.operands[0].evaluate(properties)
        if not isinstance(value, str):
            return False
        if self.kind == "CONTAINS":
            found = self.wanted in value
        elif self.kind == "STARTSWITH":
            found = value.startswith(self.wanted)
        else:
            found = value.endswith(self.wanted)
        return found is not self.negative
