"""A filter: compiled once, asked for every message."""

from __future__ import annotations

from collections.abc import Mapping

from penstock._native.filtering import Program
from penstock.filters.parser import parse
from penstock.filters.program import program
from penstock.filters.tree import EvaluationFailed, Expression


class Filter:
    """What an SQL92 expression means. ``expression`` is its text, ``program`` what readers of records run."""

    __slots__ = ("_tree", "expression", "program")

    def __init__(self, expression: str, tree: Expression) -> None:
        self.expression = expression
        self._tree = tree
        self.program: Program = program(tree)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted: it is if the expression is true of it."""
        try:
            return self.evaluate(properties) is True
        except EvaluationFailed:
            return False

    def matches_bytes(self, properties: bytes) -> bool:
        """The same for the property string of a record, quicker."""
        return self.program.matches(properties)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, false or unknown. EvaluationFailed when a value cannot be compared."""
        value = self._tree.evaluate(properties)
        assert value is None or isinstance(value, bool)
        return value

    def __repr__(self) -> str:
        return f"<Filter {self.expression!r}>"


def compile(expression: str) -> Filter:
    """The filter that a text describes. InvalidFilter, with the reason, when it describes none."""
    return Filter(expression, parse(expression))
