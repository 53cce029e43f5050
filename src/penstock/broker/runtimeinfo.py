"""How the broker does: figures for `mqadmin brokerStatus` and `clusterList` (protocol 3.8)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.bodies import json_answer
from penstock.broker.header import word
from penstock.broker.rates import Rates
from penstock.errors import RequestRefused
from penstock.format.timerunit import TIMER_CHECKPOINT_USED, encode_timer_checkpoint
from penstock.message.topic import SCHEDULE_TOPIC
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.schedules import TIMER_TOPIC

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

VERSION_TEXT = "V5_3_3"
# Here nothing has a pool of threads and a queue before it: requests of these kinds never wait for one.
UNQUEUED = ("pull", "query", "ack", "litePull")
NO_POOL = 2**31 - 1
"""What RocketMQ says of the buffers left when it uses none."""


def counted_elsewhere(broker: Broker) -> dict[str, int]:
    """Totals that the counters of a broker's messages do not have."""
    found = {"BROKER_GET_MISS": broker.holding.begun}
    timer = broker.store.schedules.running_timer
    if timer is not None:
        found["TIMER_ENQUEUED"] = timer.queue_offset
        found["TIMER_DEQUEUED"] = max(timer.queue_offset - sum(timer.metrics.counts.values()), 0)
    return found


class RuntimeInfo:
    """Answers 28, 60, 61, 306, 315, 329, 907 and 2003."""

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.table,
            RequestCode.VIEW_BROKER_STATS_DATA: self.figures,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.cold_data,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.nothing_to_do,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.timer_metrics,
        }

    def table(self, connection: Connection, request: Command) -> Command:
        return json_answer(request, {"table": self.values()})

    def values(self) -> dict[str, str]:
        """Everything by RocketMQ's names; all values are text."""
        broker, store = self._broker, self._broker.store
        stats = store.stats()
        now = broker.clock.now_ms()
        times = broker.acks.times
        puts, buffers = stats.put_count, store.free_buffers
        found = {
            "brokerActive": "true",
            "brokerVersion": "479",
            "brokerVersionDesc": VERSION_TEXT,
            "bootTimestamp": str(broker.started_ms),
            "runtime": _duration(max(now - broker.started_ms, 0) // 1000),
            "startAcceptSendRequestTimeStamp": str(broker.config.start_accept_send_request_ms),
            "commitLogMinOffset": str(stats.min_physical_offset),
            "commitLogMaxOffset": str(stats.max_physical_offset),
            "commitLogDiskRatio": f"{stats.disk_used:.2f}",
            "consumeQueueDiskRatio": f"{stats.disk_used:.2f}",
            "commitLogDirCapacity": _capacity(store.path),
            "dispatchBehindBytes": str(max(stats.dispatch_behind_bytes, 0)),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(self._earliest()),
            "remainHowManyDataToFlush": f"{max(stats.max_physical_offset - stats.flushed_where, 0)} B",
            "remainTransientStoreBufferNumbs": str(NO_POOL if buffers is None else buffers),
            "pageCacheLockTimeMills": "0",
            "putMessageTimesTotal": str(stats.put_count),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": str(stats.put_bytes / stats.put_count if stats.put_count else 0.0),
            "putMessageFailedTimes": str(broker.stats.put_failures),
            "putMessageDistributeTime": times.ranges(puts),
            "putMessageEntireTimeMax": str(times.longest_ms),
            "putLatency99": f"{times.percentile(0.99, puts):.2f}",
            "putLatency999": f"{times.percentile(0.999, puts):.2f}",
            "heldPulls": str(len(broker.holding)),
            "sendThreadPoolQueueSize": str(len(broker.acks)),
            "sendThreadPoolQueueHeadWaitTimeMills": str(int(broker.acks.longest_wait * 1000)),
            "EndTransactionQueueSize": "0",
            **self._rate_values(),
            **self._timer_values(),
            **self._delay_values(),
        }
        for pool in UNQUEUED:
            found[f"{pool}ThreadPoolQueueSize"] = "0"
            found[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return dict(sorted(found.items()))

    def _earliest(self) -> int:
        first = self._broker.store.lookup(self._broker.store.min_physical_offset)
        return -1 if first is None else first.store_timestamp

    def _rate_values(self) -> dict[str, str]:
        rates = self._rates
        found, missed = (rates.broker_tps(f"BROKER_GET_{kind}") for kind in ("FOUND", "MISS"))
        values = {
            "putTps": _three(rates.broker_tps("BROKER_PUT_NUMS")),
            "getTransferredTps": _three(rates.broker_tps("BROKER_GET_NUMS")),
            "getFoundTps": _three(found),
            "getMissTps": _three(missed),
            "getTotalTps": _three(each + other for each, other in zip(found, missed, strict=True)),
        }
        totals, (today, yesterday) = rates.totals(), rates.mornings
        for name, key in (("msgPut", "BROKER_PUT_NUMS"), ("msgGet", "BROKER_GET_NUMS")):
            values[f"{name}TotalTodayNow"] = str(totals[key, ""])
            values[f"{name}TotalTodayMorning"] = str(today.get((key, ""), 0))
            values[f"{name}TotalYesterdayMorning"] = str(yesterday.get((key, ""), 0))
        return values

    def _timer_values(self) -> dict[str, str]:
        store, timer = self._broker.store, self._broker.store.schedules.running_timer
        behind = seconds = waiting = 0
        if timer is not None:
            behind = max(store.max_offset(TIMER_TOPIC, 0) - timer.queue_offset, 0)
            waiting = sum(timer.metrics.counts.values())
            if timer.read_time:
                seconds = max(self._broker.clock.now_ms() - timer.read_time, 0) // 1000
        return {
            "timerReadBehind": str(seconds),
            "timerOffsetBehind": str(behind),
            "timerCongestNum": str(waiting),
            "timerEnqueueTps": str(self._rates.broker_tps("TIMER_ENQUEUED")[0]),
            "timerDequeueTps": str(self._rates.broker_tps("TIMER_DEQUEUED")[0]),
        }

    def _delay_values(self) -> dict[str, str]:
        store = self._broker.store
        if SCHEDULE_TOPIC not in store.topics():
            return {}
        return {
            f"scheduleMessageOffset_{level}": f"{done},{store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, done in store.schedules.delay.offsets.items()
        }

    def figures(self, connection: Connection, request: Command) -> Command:
        name, about = word(request.fields, "statsName"), word(request.fields, "statsKey")
        found = self._rates.figures(name, about)
        if found is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{about}> not exist")
        return json_answer(request, found)

    def ha_status(self, connection: Connection, request: Command) -> Command:
        client = {
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterFlushOffset": 0,
            "maxOffset": 0,
            "transferredByteInSecond": 0,
        }
        return json_answer(
            request,
            {
                "haClientRuntimeInfo": client,
                "haConnectionInfo": [],
                "inSyncSlaveNums": 0,
                "master": True,
                "masterCommitLogMaxOffset": self._broker.store.max_physical_offset,
            },
        )

    def cold_data(self, connection: Connection, request: Command) -> Command:
        return json_answer(
            request,
            {
                "runtimeTable": {},
                "configTable": {},
                "cgColdReadThreshold": 3145728,
                "globalColdReadThreshold": 104857600,
                "globalAcc": 0,
            },
        )

    def timer_metrics(self, connection: Connection, request: Command) -> Command:
        timer = self._broker.store.schedules.running_timer
        if timer is None:
            version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
            return json_answer(request, {"dataVersion": version, "timingCount": {}})
        return json_answer(request, timer.metrics.content())

    def timer_checkpoint(self, connection: Connection, request: Command) -> Command:
        """How far the timer is on disk: the numbers of its file, without the empty rest."""
        timer = self._broker.store.schedules.running_timer
        if timer is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.answer(0, None, encode_timer_checkpoint(timer.checkpoint)[:TIMER_CHECKPOINT_USED])

    def nothing_to_do(self, connection: Connection, request: Command) -> Command:
        """Queue files go with the log files they point into, without being asked."""
        return request.answer(0)

    async def delete_expired(self, connection: Connection, request: Command) -> Command:
        await asyncio.get_running_loop().run_in_executor(None, self._broker.store.clean)
        return request.answer(0)


def _three(rates: Iterable[float]) -> str:
    return " ".join(f"{rate}" for rate in rates)


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"


def _capacity(path: str) -> str:
    try:
        disk = shutil.disk_usage(path)
    except OSError:
        return "Total : 0, Free : 0."
    return f"Total : {disk.total / (1 << 30):.1f} GiB, Free : {disk.free / (1 << 30):.1f} GiB."
