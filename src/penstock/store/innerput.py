"""Putting messages whose stored properties tell their own queue offset: inner batches and light queues
(format sections 3.4 and 7.7)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from penstock._native.putresult import PutResult, refusal
from penstock._native.queue import Queue
from penstock.config import StoreConfig
from penstock.message import Message, encode_properties, unique_id
from penstock.message.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_SEPARATOR,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    parse_number,
)
from penstock.message.sysflag import INNER_BATCH_FLAG, has_queue_unit
from penstock.message.topic import LMQ_PREFIX, RETRY_TOPIC_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX
from penstock.store.commitlog import CommitLog
from penstock.store.queuetable import QueueTable, legal_queue
from penstock.store.rewrite import property_map

_MAX_BATCH = 0x7FFF
_NAMES = (PROPERTY_INNER_NUM.encode(), PROPERTY_INNER_MULTI_DISPATCH.encode())


def needs_offset(message: Message, config: StoreConfig, batch_topics: Collection[str] = ()) -> bool:
    """Whether a message must go through ``put_with_offset``; cheap for the many that need not.

    True also for messages that it will refuse: a flag or property of an inner batch where none may be.
    """
    if message.sys_flag & INNER_BATCH_FLAG:
        return True
    if message.raw_properties is not None:
        if not any(name in message.raw_properties for name in _NAMES):
            return False
        properties = property_map(message)
    elif message.properties is None:
        return False
    else:
        properties = dict(message.properties)
    return properties.get(PROPERTY_INNER_NUM) is not None or _is_multi_dispatch(message, properties, config)


def light_names(message: Message) -> list[str]:
    """The light queues that a message names, whether it may go there or not."""
    if message.raw_properties is None or _NAMES[1] not in message.raw_properties:
        return []
    names = property_map(message).get(PROPERTY_INNER_MULTI_DISPATCH, "")
    return [name for name in names.split(",") if name.strip()]


def _is_multi_dispatch(message: Message, properties: dict[str, str], config: StoreConfig) -> bool:
    """Whether the message goes to light queues too."""
    names = properties.get(PROPERTY_INNER_MULTI_DISPATCH)
    topic = message.topic
    return bool(
        config.enable_lmq
        and isinstance(names, str)
        and names.strip()
        and isinstance(topic, str)
        and topic != SCHEDULE_TOPIC
        and not topic.startswith((RETRY_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX))
    )


def put_with_offset(
    commit_log: CommitLog, queues: QueueTable, message: Message, now: int = -1, wait: bool = True
) -> PutResult:
    """Store such a message. The answers are those of an ordinary put, and so are the errors.

    The offsets that go into its properties are taken under the put lock, and the disk is waited for after it.
    """
    config, appender = commit_log.config, commit_log.appender
    try:
        properties = property_map(message)
    except (AttributeError, TypeError, ValueError) as error:
        return refusal("MESSAGE_ILLEGAL", f"a property is of the wrong kind: {error}")
    reason = _illegal(message, properties, queues)
    if reason is not None:
        return refusal("MESSAGE_ILLEGAL", reason)
    waits = message.wait and properties.get(PROPERTY_WAIT_STORE_MSG_OK, "").lower() != "false"
    if config.generate_unique_key and message.raw_properties is None:
        properties.setdefault(PROPERTY_UNIQUE_KEY, unique_id())
    inner = bool(message.sys_flag & INNER_BATCH_FLAG)
    count = max(1, parse_number(properties.get(PROPERTY_INNER_NUM)) or 1) if inner else 1
    own = queues.get(message.topic, message.queue_id).native
    lights: list[Queue | None] = []
    if _is_multi_dispatch(message, properties, config):
        # The whole string is written anew, and RocketMQ leaves this one out then.
        properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
        lights = light_natives(queues, message, properties[PROPERTY_INNER_MULTI_DISPATCH])
    appender.lock()
    try:
        while True:
            if inner:
                properties[PROPERTY_INNER_BASE] = str(own.next_offset)
            if lights:
                offsets = (str(light.next_offset if light is not None else 0) for light in lights)
                properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET] = ",".join(offsets)
            finished = replace(message, raw_properties=encode_properties(properties))
            result = appender.put(finished, now, hooked=True, wait=False, locked=True, messages=count)
            if not isinstance(result, int):
                break
            # The file was full and the lock free while another was made: others may have taken our offsets.
        if result.ok and has_queue_unit(message.sys_flag):
            for light in {light for light in lights if light is not None and light is not own}:
                light.next_offset += 1
    finally:
        appender.unlock()
    stored: PutResult = result
    must_wait = wait and waits and stored.ok and commit_log.sync_flush
    if must_wait and not commit_log.flusher.wait(stored.end_offset, appender.sync_timeout):
        stored.timed_out()
    return stored


def light_natives(queues: QueueTable, message: Message, names: str) -> list[Queue | None]:
    """The queues of a comma list, one for each name; None where the name cannot be one."""
    found: list[Queue | None] = []
    for name in names.split(","):
        queue_id = 0 if name.startswith(LMQ_PREFIX) else message.queue_id
        found.append(queues.get(name, queue_id).native if legal_queue(name, queue_id) else None)
    return found


def _illegal(message: Message, properties: dict[str, str], queues: QueueTable) -> str | None:
    """Why a message may not be stored."""
    if not legal_queue(message.topic, message.queue_id):
        return "topic or queue id is not allowed"
    pairs: list[tuple[object, object]] = list(properties.items())
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, str):
            return "property names and values are text"
        if any(c in text for text in (name, value) for c in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)):
            return "a property holds a separator (0x01 or 0x02)"
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            return "a text field is no Unicode text"
    number = properties.get(PROPERTY_INNER_NUM)
    if not message.sys_flag & INNER_BATCH_FLAG:
        return None if number is None else f"{PROPERTY_INNER_NUM} on a message that is no inner batch"
    if message.topic not in queues.batch_topics:
        return f"an inner batch for {message.topic}, whose queues are not batch queues"
    if number is not None and (parse_number(number) is None or int(number) > _MAX_BATCH):
        return f"{PROPERTY_INNER_NUM} is {number!r}, not a number up to {_MAX_BATCH}"
    return None
