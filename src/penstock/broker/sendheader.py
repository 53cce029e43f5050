"""The header of a send, in its long form (10, 324) and its short one (310, 320, 325)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.header import flag, long_number, number, optional_number, word

LONG = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
    *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch"),
)
SHORT = tuple("abcdefghijklm")


class SendHeader:
    """What a producer says beside the body."""

    __slots__ = (
        "batch",
        "born_timestamp",
        "default_queue_nums",
        "default_topic",
        "flag",
        "group",
        "max_reconsume_times",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "topic",
        "unit_mode",
    )

    def __init__(self, fields: Mapping[str, str], names: tuple[str, ...]) -> None:
        """Raises RequestRefused when a field is missing or no number."""
        a, b, c, d, e, f, g, h, i, j, k, ell, m = names
        get = fields.get
        try:
            self.group = fields[a]
            self.topic = fields[b]
            self.default_topic = fields[c]
            self.default_queue_nums = _small(fields[d])
            self.queue_id = _small(fields[e])
            self.sys_flag = _small(fields[f])
            self.born_timestamp = _time(fields[g])
            self.flag = _small(fields[h])
            self.reconsume_times = _small(get(j) or "0")
        except (KeyError, ValueError):
            self._read_slowly(fields, names)
        self.properties = get(i) or ""
        self.unit_mode = get(k) == "true"
        most = get(ell)
        self.max_reconsume_times = None if most is None else optional_number(fields, ell, 0)
        self.batch = get(m) == "true" or flag(fields, m)

    def _read_slowly(self, fields: Mapping[str, str], names: tuple[str, ...]) -> None:
        """Numbers that are not plain digits, and the faults by their name."""
        a, b, c, d, e, f, g, h, _, j, _, _, _ = names
        self.group = word(fields, a)
        self.topic = word(fields, b)
        self.default_topic = word(fields, c)
        self.default_queue_nums = number(fields, d)
        self.queue_id = number(fields, e)
        self.sys_flag = number(fields, f)
        self.born_timestamp = long_number(fields, g)
        self.flag = number(fields, h)
        self.reconsume_times = optional_number(fields, j, 0)


def _small(text: str) -> int:
    """A number that is surely in range; ValueError for the others, which are looked at with care."""
    if len(text) > 9 or not text.isdigit() or not text.isascii():
        raise ValueError(text)
    return int(text)


def _time(text: str) -> int:
    """A time in milliseconds, as ``_small``."""
    if len(text) > 15 or not text.isdigit() or not text.isascii():
        raise ValueError(text)
    return int(text)
