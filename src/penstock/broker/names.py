"""Which names of topics and groups clients may use, and the remarks on others (protocol 4.1)."""

from __future__ import annotations

import re

from penstock.message.topic import (
    DLQ_TOPIC_PREFIX,
    GROUP_MAX_LENGTH,
    RETRY_TOPIC_MAX_LENGTH,
    RETRY_TOPIC_PREFIX,
    TOPIC_MAX_LENGTH,
)

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""RocketMQ ends some remarks with it; clients show it to people and never parse it."""

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_ALLOWED = "allowing only ^[%|a-zA-Z0-9_-]+$"


def topic_fault(name: str) -> str | None:
    """Why a client may not use this topic, in RocketMQ's words, or None when it may."""
    if not name or not name.strip():
        return "The specified topic is blank."
    if not _LEGAL.fullmatch(name):
        return f"The specified topic: {name}, contains illegal characters, {_ALLOWED}"
    if name.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)):
        if len(name) > RETRY_TOPIC_MAX_LENGTH:
            return (
                f"The specified topic is DLQ or Retry topic: {name}, "
                f"and it's longer than topic max length: {RETRY_TOPIC_MAX_LENGTH}"
            )
    elif len(name) > TOPIC_MAX_LENGTH:
        return f"The specified topic: {name}, is longer than topic max length: {TOPIC_MAX_LENGTH}"
    return None


def group_fault(name: str) -> str | None:
    """Why a client may not use this group, or None when it may."""
    if not name or not name.strip():
        return "The specified group is blank."
    if not _LEGAL.fullmatch(name):
        return f"The specified group: {name}, contains illegal characters, {_ALLOWED}"
    if len(name) > GROUP_MAX_LENGTH:
        return f"The specified group: {name}, is longer than group max length: {GROUP_MAX_LENGTH}"
    return None
