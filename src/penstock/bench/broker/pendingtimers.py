"""A process whose store holds many timers: ``python -m penstock.bench.broker.pendingtimers fill PATH COUNT``.

Through the store itself, without the wire: a broker keeps nothing of a timer beside its store. ``fill`` puts
them as the hook would, due over two days, and waits until all are in the wheel; ``open`` opens the store
again. Both print their anonymous memory.
"""

from __future__ import annotations

import json
import os
import sys
import time

from penstock.bench.machine import rss_anon
from penstock.config import StoreConfig
from penstock.message import Message
from penstock.message.topic import TIMER_TOPIC
from penstock.store.opening import open_writable

_STEP = 10_000
_DAYS_MS = 2 * 86_400_000
_HOUR_MS = 3_600_000
_CONFIG = StoreConfig(flush_disk_type="async", message_index_enable=False)


def _timed(number: int, now: int) -> Message:
    """As the put hook leaves a timed message: in the timer topic, with the time and where it belongs."""
    out = (now + _HOUR_MS + number * 7919 % _DAYS_MS) // 1000 * 1000
    topic = f"t{number % 16}"
    text = f"TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02UNIQ_KEY\x01{number:032X}\x02"
    return Message(TIMER_TOPIC, b"x" * 64, queue_id=0, raw_properties=text.encode())


def main(what: str, path: str, count: int) -> dict[str, float]:
    begin = time.monotonic()
    with open_writable(path, config=_CONFIG) as store:
        timer = store.schedules.timer
        if what == "fill":
            now = store.clock.now_ms()
            for first in range(0, count, _STEP):
                store.append_many([_timed(number, now) for number in range(first, min(first + _STEP, count))])
        while timer.queue_offset < store.max_offset(TIMER_TOPIC, 0) or store.undispatched:
            timer.wake()
            time.sleep(0.01)
        if timer.queue_offset != count:
            raise SystemExit(f"{timer.queue_offset} of {count} timers are in the wheel")
        return {"memory": rss_anon(os.getpid()), "seconds": time.monotonic() - begin}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
