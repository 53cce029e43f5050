"""Bodies of answers and requests: compact JSON, and RocketMQ's maps whose keys are queues (protocol 1.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import RequestRefused
from penstock.format.javajson import JsonError, ObjectKey, parse, render
from penstock.remoting import Command, ResponseCode

MAX_ADMIN_BODY = 4 << 20
"""Requests of administration that are larger are refused unread."""

_encode = msgspec.json.Encoder().encode


def json_answer(request: Command, value: Any, fields: dict[str, str] | None = None) -> Command:
    """Success with a body of strict, compact JSON."""
    return request.answer(0, fields, _encode(value))


def queue_key(broker_name: str, topic: str, queue_id: int) -> ObjectKey:
    """A queue as the key of a map."""
    return (("brokerName", broker_name), ("queueId", queue_id), ("topic", topic))


def java_answer(request: Command, value: Mapping[str, Any], fields: dict[str, str] | None = None) -> Command:
    """Success with a body as fastjson writes it: objects as keys, integer keys bare."""
    return request.answer(0, fields, render(dict(value), pretty=False).encode())


def body_object(request: Command) -> dict[str, Any]:
    """The JSON object that a request carries, read as liberally as RocketMQ does."""
    if len(request.body) > MAX_ADMIN_BODY:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"a body of {len(request.body)} bytes is too large")
    try:
        found = parse(str(request.body, "utf-8"))
    except (JsonError, UnicodeDecodeError) as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body is no JSON object")
    return {str(key): value for key, value in found.items()}
