"""How the broker does: figures for `mqadmin brokerStatus` and `clusterList` (protocol 3.8)."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from penstock.broker.bodies import json_answer
from penstock.broker.header import word
from penstock.broker.rates import Rates
from penstock.errors import RequestRefused
from penstock.message.topic import SCHEDULE_TOPIC
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

VERSION_TEXT = "V5_3_3"
# RocketMQ has a pool of threads for each kind of request; here nothing queues, and tools want the figures.
POOLS = ("send", "pull", "query", "ack", "litePull")


class RuntimeInfo:
    """Answers 28, 315, 907, 2003, 306, 329, 61 and 402."""

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
            RequestCode.GET_TIMER_METRICS: self.timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.request_modes,
        }

    def table(self, connection: Connection, request: Command) -> Command:
        return json_answer(request, {"table": self.values()})

    def values(self) -> dict[str, str]:
        """Everything by RocketMQ's names; all values are text."""
        broker, store = self._broker, self._broker.store
        stats = store.stats()
        now = broker.clock.now_ms()
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
            "remainTransientStoreBufferNumbs": "2147483647",
            "pageCacheLockTimeMills": "0",
            "putMessageTimesTotal": str(stats.put_count),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": str(stats.put_bytes / stats.put_count if stats.put_count else 0.0),
            "putMessageFailedTimes": str(broker.stats.put_failures),
            "putMessageDistributeTime": "",
            "putMessageEntireTimeMax": "0",
            "getMessageEntireTimeMax": "0",
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "heldPulls": str(len(broker.holding)),
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "100000",
            **self._rate_values(),
            **self._timer_values(),
            **self._delay_values(),
        }
        for pool in POOLS:
            found[f"{pool}ThreadPoolQueueSize"] = "0"
            found[f"{pool}ThreadPoolQueueCapacity"] = "100000"
            found[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return dict(sorted(found.items()))

    def _earliest(self) -> int:
        first = self._broker.store.lookup(self._broker.store.min_physical_offset)
        return -1 if first is None else first.store_timestamp

    def _rate_values(self) -> dict[str, str]:
        put, got = self._rates.broker_tps("BROKER_PUT_NUMS"), self._rates.broker_tps("BROKER_GET_NUMS")
        totals = self._rates.totals()
        text = {"put": _three(put), "get": _three(got)}
        return {
            "putTps": text["put"],
            "getTransferredTps": text["get"],
            "getFoundTps": text["get"],
            "getTotalTps": text["get"],
            "getMissTps": "0.0 0.0 0.0",
            "msgPutTotalTodayNow": str(totals["BROKER_PUT_NUMS", ""]),
            "msgGetTotalTodayNow": str(totals["BROKER_GET_NUMS", ""]),
            # Counted since the start: of the days before nothing is known.
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalYesterdayMorning": "0",
        }

    def _timer_values(self) -> dict[str, str]:
        return {
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
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
        version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        return json_answer(request, {"dataVersion": version, "timingCount": {}})

    def request_modes(self, connection: Connection, request: Command) -> Command:
        return json_answer(request, {"messageRequestModeMap": {}})

    def nothing_to_do(self, connection: Connection, request: Command) -> Command:
        """Queue files go with the log files they point into, without being asked."""
        return request.answer(0)

    async def delete_expired(self, connection: Connection, request: Command) -> Command:
        await asyncio.get_running_loop().run_in_executor(None, self._broker.store.clean)
        return request.answer(0)


def _three(rates: tuple[float, float, float]) -> str:
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
    return f"Total : {disk.total >> 30}GiB, Free : {disk.free >> 30}GiB."
