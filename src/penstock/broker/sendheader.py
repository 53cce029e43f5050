"""The header of a send, in its long form (10, 324) and its short one (310, 320, 325)."""

from __future__ import annotations

from penstock._native.sendheader import LONG, SHORT, SendHeader, read_header
from penstock.broker.header import flag, long_number, number, optional_number, word

__all__ = ["LONG", "SHORT", "SendHeader", "read_closely", "send_header"]


def send_header(fields: dict[str, str], names: tuple[str, ...]) -> SendHeader:
    """What a producer says beside the body. Raises RequestRefused when a field is missing or no number."""
    try:
        return read_header(fields, names)
    except (KeyError, ValueError):
        return read_closely(fields, names)


def read_closely(fields: dict[str, str], names: tuple[str, ...]) -> SendHeader:
    """Any header: numbers with a sign or of unusual length, and the faults by their name."""
    a, b, c, d, e, f, g, h, i, j, k, ell, m = names
    header = SendHeader()
    header.group = word(fields, a)
    header.topic = word(fields, b)
    header.default_topic = word(fields, c)
    header.default_queue_nums = number(fields, d)
    header.queue_id = number(fields, e)
    header.sys_flag = number(fields, f)
    header.born_timestamp = long_number(fields, g)
    header.flag = number(fields, h)
    header.properties = fields.get(i, "")
    header.reconsume_times = optional_number(fields, j, 0)
    header.unit_mode = flag(fields, k)
    header.max_reconsume_times = optional_number(fields, ell, 0) if fields.get(ell) else None
    header.batch = flag(fields, m)
    return header
