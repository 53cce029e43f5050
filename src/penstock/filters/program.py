"""From the tree of a filter to the form that the broker runs over the bytes of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._native.filtering import Program
from penstock.filters.javanumbers import Long, double, whole
from penstock.filters.tree import (
    And,
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
from penstock.filters.values import Value

if TYPE_CHECKING:
    from penstock._native.filtering import Node

# The numbers are those of _native.filtering.
_CONSTANT, _PROPERTY, _IN, _ORDER, _SEARCH = 0, 1, 9, 8, 10
_PLAIN: dict[type[Expression], int] = {Negation: 2, Flag: 3, Not: 4, And: 5, Or: 6, Equal: 7}
_SIGNS = {">": 0, ">=": 1, "<": 2, "<=": 3}
_SEARCHES = {"CONTAINS": 0, "STARTSWITH": 1, "ENDSWITH": 2}


def program(tree: Expression) -> Program:
    """The tree as a program."""
    nodes: list[Node] = []
    names: dict[str, int] = {}

    def add(expression: Expression) -> int:
        operands = [add(operand) for operand in expression.operands]
        nodes.append(_node(expression, operands, names))
        return len(nodes) - 1

    add(tree)
    return Program(nodes, [name.encode() for name in names], whole, double)


def _node(expression: Expression, operands: list[int], names: dict[str, int]) -> Node:
    if isinstance(expression, Constant):
        return _CONSTANT, 0, False, (), (), _constant(expression.value)
    if isinstance(expression, Property):
        return _PROPERTY, 0, False, (), (), names.setdefault(expression.name, len(names))
    if isinstance(expression, In):
        texts = sorted((text.encode() for text in expression.values), key=lambda text: (len(text), text))
        return _IN, 0, expression.negative, operands, texts, None
    if isinstance(expression, Order):
        return _ORDER, _SIGNS[expression.sign], False, operands, (), None
    if isinstance(expression, Search):
        kind = _SEARCHES[expression.kind]
        return _SEARCH, kind, expression.negative, operands, (expression.wanted.encode(),), None
    return _PLAIN[type(expression)], 0, False, operands, (), None


def _constant(value: Value) -> tuple[int, str | bytes | int | float | None]:
    if value is None:
        return 0, None
    if isinstance(value, str):
        return 1, value.encode()
    if isinstance(value, bool):
        return 5, value
    if isinstance(value, float):
        return 4, value
    return (3 if isinstance(value, Long) else 2), value
