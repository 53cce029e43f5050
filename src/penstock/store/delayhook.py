"""The put hook of delay levels (store format, section 15.1)."""

from __future__ import annotations

from penstock.message import Message
from penstock.message.properties import PROPERTY_DELAY_TIME_LEVEL
from penstock.message.sysflag import has_queue_unit
from penstock.message.topic import SCHEDULE_TOPIC
from penstock.store.face import ServiceStore
from penstock.store.rewrite import parse_number, property_map, redirected

_DELAY = PROPERTY_DELAY_TIME_LEVEL.encode()


def requested_level(message: Message) -> int:
    """The delay level a message asks for; 0 when it asks for none or for something that is no number."""
    if message.raw_properties is not None:
        if _DELAY not in message.raw_properties:
            return 0
        return parse_number(property_map(message).get(PROPERTY_DELAY_TIME_LEVEL)) or 0
    if message.delay_level > 0:
        return message.delay_level
    if not message.properties:
        return 0
    return parse_number(message.properties.get(PROPERTY_DELAY_TIME_LEVEL)) or 0


def delay_level_hook(message: Message, store: ServiceStore) -> Message:
    """The message itself, or what is stored in its place until its level's time has passed.

    A level above the highest counts as the highest. Prepared and rolled back records are left alone: they
    are in no queue, nobody would ever deliver them.
    """
    level = requested_level(message)
    if level <= 0 or not has_queue_unit(message.sys_flag):
        return message
    level = min(level, len(store.config.delay_levels_ms))
    properties = property_map(message)
    properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
    return redirected(message, store, properties, topic=SCHEDULE_TOPIC, queue_id=level - 1)
