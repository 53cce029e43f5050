"""The put hook of timer messages (store format, section 15.3), and the two schedule hooks in their order."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from penstock.message import Message, encode_properties
from penstock.message.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
)
from penstock.message.sysflag import has_queue_unit
from penstock.message.topic import TIMER_TOPIC
from penstock.store.delayhook import delay_level_hook
from penstock.store.face import ServiceStore
from penstock.store.rewrite import parse_number, property_map, redirected

NOT_ENABLED = "WHEEL_TIMER_NOT_ENABLE"
ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
# In order of precedence.
REQUESTS = (PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS)
_REQUESTED = frozenset(REQUESTS)
_MOST_COUNTED = 2**31 - 1


def timed_properties(message: Message) -> dict[str, str] | None:
    """The map of a message's properties if a timer request is among them. Cheap: every put asks this."""
    raw = message.raw_properties
    if raw is not None:
        if b"TIMER_DEL" not in raw:
            return None
    elif not message.properties or _REQUESTED.isdisjoint(message.properties):
        return None
    properties = property_map(message)
    return None if _REQUESTED.isdisjoint(properties) else properties


def wheel_time(deliver_ms: int, precision_ms: int) -> int:
    """The slot whose end is the first tick at or after ``deliver_ms``.

    A slot is emptied when its tick is over, so this is never early; a time on a tick's edge belongs to the
    slot before it, or it would be a tick late.
    """
    return (deliver_ms - 1) // precision_ms * precision_ms


class ScheduleHook:
    """Rewrites messages that are to be delivered later: by timer, by delay level, or not at all.

    ``congestion`` tells how many messages a slot holds already; without it no put is refused for that.
    """

    def __init__(
        self, congestion: Callable[[int], int] | None = None, *, rng: random.Random | None = None
    ) -> None:
        self._congestion = congestion
        self._rng = rng or random.Random()

    def __call__(self, message: Message, store: ServiceStore) -> Message | str:
        """The message to store in place of this one, or the status that ends the put."""
        properties = timed_properties(message)
        if properties is not None and has_queue_unit(message.sys_flag):
            answer = self._time(message, store, properties)
            if isinstance(answer, str) or answer.topic == TIMER_TOPIC:
                return answer
            message = answer
        return delay_level_hook(message, store)

    def _time(self, message: Message, store: ServiceStore, properties: dict[str, str]) -> Message | str:
        if (parse_number(properties.get(PROPERTY_DELAY_TIME_LEVEL)) or 0) > 0:
            # A level wins, and the request must not come up again when the message is delivered.
            kept = {name: value for name, value in properties.items() if name not in REQUESTS}
            return replace(message, raw_properties=encode_properties(kept))
        if message.topic == TIMER_TOPIC or PROPERTY_TIMER_OUT_MS in properties:
            return message
        if not store.config.timer_wheel_enable:
            return NOT_ENABLED
        now = store.clock.now_ms()
        deliver = _deliver_time(properties, now)
        if deliver is None or deliver - now > store.config.timer_max_delay_sec * 1000:
            return ILLEGAL
        if deliver <= now:
            return ILLEGAL if PROPERTY_TIMER_DEL_UNIQKEY in properties else message
        out = wheel_time(deliver, store.config.timer_precision_ms)
        if self._refuses(out, store.config.timer_congest_num_each_slot):
            return FLOW_CONTROL
        properties[PROPERTY_TIMER_OUT_MS] = str(out)
        return redirected(message, store, properties, topic=TIMER_TOPIC, queue_id=0)

    def _refuses(self, out: int, limit: int) -> bool:
        """Whether the slot is too full: never up to the limit, always from twice the limit on."""
        if self._congestion is None or limit >= _MOST_COUNTED:
            return False
        count = self._congestion(out)
        if count <= limit:
            return False
        if count >= 2 * limit:
            return True
        return self._rng.randrange(1000) > 1000 * (count - limit) / (limit + 0.1)


schedule_hook = ScheduleHook()
"""The hook of a store without a running timer: nothing is refused for congestion."""


def _deliver_time(properties: dict[str, str], now: int) -> int | None:
    for name, unit in ((PROPERTY_TIMER_DELAY_SEC, 1000), (PROPERTY_TIMER_DELAY_MS, 1)):
        if name in properties:
            delay = parse_number(properties[name])
            return None if delay is None else now + delay * unit
    return parse_number(properties[PROPERTY_TIMER_DELIVER_MS])
