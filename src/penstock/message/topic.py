"""Topic names: which are legal, which belong to the system (store format, sections 1.3 and 2.8)."""

from __future__ import annotations

import re

TOPIC_MAX_LENGTH = 127
RETRY_TOPIC_MAX_LENGTH = 255
GROUP_MAX_LENGTH = 120
PROPERTIES_MAX_LENGTH = 32767

RETRY_TOPIC_PREFIX = "%RETRY%"
DLQ_TOPIC_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
BENCHMARK_TOPIC = "BenchmarkTest"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)

FORBIDDEN_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics that clients may not send to."""

_UNSAFE = frozenset("/\\\0")
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_retry_topic(topic: str) -> bool:
    """Whether the topic holds messages of a consumer group to be tried again."""
    return topic.startswith(RETRY_TOPIC_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Whether the topic belongs to the broker itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def max_topic_bytes(topic: str) -> int:
    """How many UTF-8 bytes a store accepts for a topic of this kind: only retry topics may be longer."""
    return RETRY_TOPIC_MAX_LENGTH if is_retry_topic(topic) else TOPIC_MAX_LENGTH


def validate_topic(name: str) -> str | None:
    """Why a client may not use this name as a topic, or None when it may.

    Stricter than the store, which takes any text of legal length that is safe as a folder name.
    """
    if not name:
        return "the topic is empty"
    limit = (
        RETRY_TOPIC_MAX_LENGTH
        if name.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))
        else TOPIC_MAX_LENGTH
    )
    if len(name) > limit:
        return f"the topic has {len(name)} characters, more than {limit}"
    if not _LEGAL.fullmatch(name):
        return f"the topic {name!r} has characters other than letters, digits, '%', '|', '-' and '_'"
    return None


def is_path_safe(name: str) -> bool:
    """Whether a name can be a folder of its own.

    No separator, no NUL, not empty, not this folder or its parent.
    """
    return name not in ("", ".", "..") and not set(name) & _UNSAFE
