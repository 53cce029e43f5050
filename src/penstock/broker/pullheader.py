"""The header of a pull (protocol 3.2)."""

from __future__ import annotations

from penstock._native.pullheader import PullHeader, read_pull
from penstock.broker.header import long_number, number, optional_long, word

__all__ = ["PullHeader", "pull_header", "read_closely"]


def pull_header(fields: dict[str, str]) -> PullHeader:
    """What a consumer asks for. Raises RequestRefused when a field is missing or no number."""
    try:
        return read_pull(fields)
    except (KeyError, ValueError):
        return read_closely(fields)


def read_closely(fields: dict[str, str]) -> PullHeader:
    """Any header: fields that may be absent, and the faults by their name."""
    header = PullHeader()
    header.group = word(fields, "consumerGroup")
    header.topic = word(fields, "topic")
    header.queue_id = number(fields, "queueId")
    header.offset = long_number(fields, "queueOffset")
    header.count = number(fields, "maxMsgNums")
    header.sys_flag = number(fields, "sysFlag")
    header.commit_offset = optional_long(fields, "commitOffset", -1)
    header.suspend_ms = optional_long(fields, "suspendTimeoutMillis", 0)
    header.subscription = fields.get("subscription")
    header.expression_type = fields.get("expressionType")
    return header
