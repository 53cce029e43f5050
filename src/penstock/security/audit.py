"""The record of refusals and of administration: one JSON object a line, logger ``penstock.audit``.

Names come from strangers: JSON escapes what would begin another line, long ones are cut, no secret and no
signature is ever passed in, and there is a bound to how many lines are written in a while.
"""

from __future__ import annotations

import json
import logging

from penstock.remoting import Command, Connection, RequestCode
from penstock.remoting.sparing import SparingLog

logger = logging.getLogger("penstock.audit")

MOST_TEXT = 200
_LINES, _SECONDS = 1000, 10.0


class Audit:
    """Writes the lines of one server."""

    def __init__(self) -> None:
        # Apart: a flood of refusals must not hide what an administrator did.
        self._refusals = SparingLog(logger, _LINES, _SECONDS)
        self._administration = SparingLog(logger, _LINES, _SECONDS)

    def refused(self, connection: Connection, request: Command, code: int, why: str) -> None:
        """A request that was not served."""
        line = audit_line("refused", connection, request, answer=code, why=why)
        self._refusals.line(logging.WARNING, "%s", line)

    def administration(self, connection: Connection, request: Command, names: list[str]) -> None:
        """A request of administration that was let through."""
        line = audit_line("administration", connection, request, resources=names[:20])
        self._administration.line(logging.INFO, "%s", line)


def audit_line(event: str, connection: Connection, request: Command, **more: object) -> str:
    """The object as one line of ASCII."""
    values: dict[str, object] = {
        "event": event,
        "peer": connection.peer_text,
        "account": request.fields.get("AccessKey"),
        "code": request.code,
        "request": _name(request.code),
        **more,
    }
    return json.dumps({key: _cut(value) for key, value in values.items() if value is not None})


def _name(code: int) -> str | None:
    try:
        return RequestCode(code).name
    except ValueError:
        return None


def _cut(value: object) -> object:
    if isinstance(value, list):
        return [_cut(each) for each in value]
    return value[:MOST_TEXT] + "…" if isinstance(value, str) and len(value) > MOST_TEXT else value
