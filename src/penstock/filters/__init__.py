"""Filters by the properties of a message, in RocketMQ's SQL92: ``compile(text).matches(properties)``."""

from __future__ import annotations

from penstock.errors import InvalidFilter
from penstock.filters.filter import Filter, compile
from penstock.filters.limits import MAX_DEPTH, MAX_LENGTH, MAX_NAMES, MAX_TERMS, MAX_VALUES
from penstock.filters.tree import EvaluationFailed

SQL92 = "SQL92"
"""What clients call these filters in ``expressionType``."""

__all__ = [
    "MAX_DEPTH",
    "MAX_LENGTH",
    "MAX_NAMES",
    "MAX_TERMS",
    "MAX_VALUES",
    "SQL92",
    "EvaluationFailed",
    "Filter",
    "InvalidFilter",
    "compile",
]
