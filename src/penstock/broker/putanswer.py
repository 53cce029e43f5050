"""How a put went, in the codes and remarks that producers know (protocol 4.3)."""

from __future__ import annotations

from typing import Any

from penstock.errors import DiskFull, FlushFailed, PenstockError, StoreClosed, StoreReadOnly
from penstock.remoting import ResponseCode
from penstock.store.messagestore import MessageStore

STORED = frozenset({"PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"})
"""The record is in the log with each of these."""

_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {limit}B, msg properties length limit 32KB."
)
_TIMER_ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay {delay}ms; "
    "or if set del msg, the delay time should be bigger than the current time"
)
_UNAVAILABLE = (
    "service not available now. It may be caused by one of the following reasons: "
    "the broker's disk is full [{why}], messages are put to the slave, message store has been shut down, etc."
)
LIGHT_QUEUES_FULL = (
    "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, "
    "lmq consumeQueue num exceed maxLmqConsumeQueueNum config num, default limit 2w."
)


def refusal(store: MessageStore, result: Any) -> tuple[int, str]:
    """Code and remark for a message that was not stored."""
    status = result.status
    if status in ("MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED"):
        return ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL.format(limit=store.config.max_message_size)
    if status == "CREATE_MAPPED_FILE_FAILED":
        error = store.roll_error
        if isinstance(error, DiskFull):
            return ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(why=error.message)
        return ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."
    if status == "WHEEL_TIMER_MSG_ILLEGAL":
        delay = store.config.timer_max_delay_sec * 1000
        return ResponseCode.MESSAGE_ILLEGAL, _TIMER_ILLEGAL.format(delay=delay)
    if status == "WHEEL_TIMER_FLOW_CONTROL":
        most = store.config.timer_congest_num_each_slot
        return (
            ResponseCode.SYSTEM_ERROR,
            f"timer message is under flow control, max num limit is {most} or the current value is greater "
            f"than {most // 2} and less than {most}, trigger random flow control",
        )
    if status == "WHEEL_TIMER_NOT_ENABLE":
        return (
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    if status == "SERVICE_NOT_AVAILABLE":
        return ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(why=result.reason or "")
    if status == "OS_PAGE_CACHE_BUSY":
        return ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    return ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"


def failure(error: PenstockError) -> tuple[int, str]:
    """Code and remark for a store that raised. All of these make a producer try elsewhere, or again."""
    if isinstance(error, DiskFull | FlushFailed | StoreReadOnly | StoreClosed):
        return ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(why=error.message)
    return ResponseCode.SYSTEM_ERROR, f"UNKNOWN_ERROR: {error.message}"


def flush_failure(error: OSError) -> tuple[int, str | None]:
    """Code and remark for a message that is in the log but not on disk."""
    if isinstance(error, TimeoutError):
        return ResponseCode.FLUSH_DISK_TIMEOUT, None
    # Whether it survives nobody knows: never told as success, and the producer tries another broker.
    return ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE.format(why=f"a sync failed: {error}")
