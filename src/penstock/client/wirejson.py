"""Bodies of answers: JSON, and what RocketMQ's serializer takes for JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from penstock.errors import RemotingError
from penstock.format.javajson import JsonError, parse

T = TypeVar("T")

encode = msgspec.json.Encoder().encode


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    """A body as a struct. Keys of maps may be without quotes, as RocketMQ writes whole numbers."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        return _convert(_plain(decode_any(body)), kind)


def decode_any(body: bytes | memoryview) -> Any:
    """A body as dicts and lists. A key that is an object is a tuple of pairs, one without quotes an int."""
    try:
        return parse(bytes(body).decode())
    except (JsonError, UnicodeDecodeError) as error:
        raise RemotingError(f"an answer whose body is no JSON: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _convert(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise RemotingError(f"an answer of another shape than expected: {error}") from None
