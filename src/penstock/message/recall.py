"""Handles by which a producer takes a timed message back (protocol 4.5)."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from penstock.message.properties import parse_number

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """What a producer is told of a timed message, and shows to take it back."""

    topic: str
    broker_name: str
    timestamp: int
    """A moment inside the tick that the message is in; -1 when the text has no number there."""
    unique_key: str

    def encode(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.timestamp} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def decode_handle(text: str) -> RecallHandle | None:
    """The handle, or None when the text is none."""
    try:
        parts = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        return None
    if len(parts) != 5 or parts[0] != _VERSION or not all(parts):
        return None
    moment = parse_number(parts[3])
    return RecallHandle(parts[1], parts[2], -1 if moment is None else moment, parts[4])
