"""A broker that kills itself, with signal 9, at one step of its timer: run as a program by the tests.

``killed_timer.py STORE STEP SIDE COUNT`` prints its address and dies before or behind (SIDE) the COUNT-th
call of STEP after the first request to it; with the step ``none`` it lives until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from penstock.broker import Broker
from penstock.config import BrokerConfig, StoreConfig
from penstock.store import timer
from penstock.store.timercheckpoint import TimerCheckpointFile
from penstock.store.timerdelivered import DeliveryPlace
from penstock.store.timerdelivery import TimerDelivery
from penstock.store.timerlog import TimerLog
from penstock.store.timerwheel import TimerWheel

STEPS: dict[str, tuple[Any, str]] = {
    "take up messages": (timer.TimerMessageStore, "_enqueue_run"),
    "append to the timer log": (TimerLog, "append"),
    "add to the wheel": (TimerWheel, "set"),
    "open a slot": (TimerDelivery, "open_slot"),
    "deliver messages": (TimerDelivery, "_put_run"),
    "make deliveries readable": (timer, "publish"),
    "flush the timer log": (TimerLog, "flush"),
    "flush the wheel": (TimerWheel, "flush"),
    "save the checkpoint": (TimerCheckpointFile, "save"),
    "save the place": (DeliveryPlace, "save"),
}
armed = False


def die_at(step: str, side: str, count: int) -> None:
    owner, name = STEPS[step]
    real = getattr(owner, name)
    left = [count]

    def killing(*args: Any, **more: Any) -> Any:
        left[0] -= armed
        last = armed and left[0] == 0
        if last and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*args, **more)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, killing)


async def serve(path: str) -> None:
    global armed
    store = StoreConfig(
        mapped_file_size_commit_log=16 << 20,
        message_index_enable=False,
        timer_precision_ms=100,
        timer_roll_window_slot=10,
        timer_flush_interval_ms=50,
    )
    settings = {"listen_port": 0, "namesrv_port": 0, "recall_message_enable": True}
    async with Broker(BrokerConfig(store_path=path, store=store, **settings)) as broker:
        armed = True
        print(broker.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[2] != "none":
        die_at(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    asyncio.run(serve(sys.argv[1]))
