"""A part of a table, as newer tools ask for it (protocol 3.5, codes 21 and 201)."""

from __future__ import annotations

from typing import Any

from penstock.broker.header import optional_number
from penstock.remoting import Command


def page(
    table: dict[str, Any], request: Command, start: str, count: str, total: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The rows from an index on, so many, in the order of names; and the header field with their number."""
    first = max(optional_number(request.fields, start, 0), 0)
    most = optional_number(request.fields, count, len(table))
    names = sorted(table)[first : first + max(most, 1)]
    return {name: table[name] for name in names}, {total: str(len(table))}
