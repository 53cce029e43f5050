"""Every setting of a store: name, default, range.

Two groups. *Behaviour* changes what is stored, kept or answered; *performance* only how fast and at which
cost. Names are RocketMQ's in snake case, with the unit at the end where it is not plain: ``_ms``, ``_sec``,
``_hours``; sizes are bytes, ratios percent. Defaults are RocketMQ's, except where a comment says otherwise.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.config.delaylevels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from penstock.errors import ConfigError

Group = Literal["behaviour", "performance"]

_INT32 = 2**31 - 1
_GIB = 1 << 30
_DAY_MS = 86_400_000

CONSUME_QUEUE_UNIT = 20
BATCH_CONSUME_QUEUE_UNIT = 46


@dataclass(frozen=True, slots=True)
class Limits:
    """What a value must satisfy beyond its type. Bounds are inclusive."""

    group: Group
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()


def _behaviour(default: Any, low: int = 0, high: int = _INT32, choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(
        default=default, metadata={"limits": _limits("behaviour", default, low, high, choices)}
    )


def _performance(default: Any, low: int = 0, high: int = _INT32, choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(
        default=default, metadata={"limits": _limits("performance", default, low, high, choices)}
    )


def _limits(group: Group, default: Any, low: int, high: int, choices: tuple[str, ...]) -> Limits:
    if isinstance(default, int) and not isinstance(default, bool):
        return Limits(group, low, high)
    return Limits(group, choices=choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of one store. Checked when made: a wrong value raises ConfigError, holders need not check."""

    # -- behaviour: what an acknowledgement means ---------------------------------------------------------
    # RocketMQ's default is async; here acked means on disk.
    flush_disk_type: str = _behaviour("sync", choices=("sync", "async"))
    sync_flush_timeout_ms: int = _behaviour(5000, 1)
    read_uncommitted: bool = _behaviour(False)

    # -- behaviour: files (sizes of an existing store are read off its files) -----------------------------
    store_path_commit_log: str = _behaviour("")
    read_only_commit_log_store_paths: str = _behaviour("")
    mapped_file_size_commit_log: int = _behaviour(_GIB, 1024)
    mapped_file_size_consume_queue: int = _behaviour(6_000_000, CONSUME_QUEUE_UNIT)
    enable_consume_queue_ext: bool = _behaviour(False)
    mapped_file_size_consume_queue_ext: int = _behaviour(48 << 20, 64)
    bit_map_length_consume_queue_ext: int = _behaviour(64, 0, 32768 * 8)
    mapper_file_size_batch_consume_queue: int = _behaviour(13_800_000, BATCH_CONSUME_QUEUE_UNIT)
    mapped_file_size_timer_log: int = _behaviour(100 << 20, 68)

    # -- behaviour: messages ------------------------------------------------------------------------------
    max_message_size: int = _behaviour(4 << 20, 1)
    auto_message_version_on_topic_len: bool = _behaviour(True)
    enabled_append_prop_crc: bool = _behaviour(False)
    force_verify_prop_crc: bool = _behaviour(False)
    generate_unique_key: bool = _behaviour(True)
    store_host: str = _behaviour("127.0.0.1:10911")

    # -- behaviour: recovery ------------------------------------------------------------------------------
    check_crc_on_recover: bool = _behaviour(True)
    check_dup_info: bool = _behaviour(False)

    # -- behaviour: index ---------------------------------------------------------------------------------
    message_index_enable: bool = _behaviour(True)
    max_hash_slot_num: int = _behaviour(5_000_000, 1)
    max_index_num: int = _behaviour(20_000_000, 2)
    max_msgs_num_batch: int = _behaviour(64, 1)
    default_query_max_num: int = _behaviour(32, 1)

    # -- behaviour: light queues --------------------------------------------------------------------------
    enable_lmq: bool = _behaviour(False)
    enable_multi_dispatch: bool = _behaviour(False)
    max_lmq_consume_queue_num: int = _behaviour(20_000, 0)

    # -- behaviour: reading -------------------------------------------------------------------------------
    max_transfer_bytes_on_message_in_memory: int = _behaviour(262_144, 1)
    max_transfer_count_on_message_in_memory: int = _behaviour(32, 1)
    max_transfer_bytes_on_message_in_disk: int = _behaviour(65_536, 1)
    max_transfer_count_on_message_in_disk: int = _behaviour(8, 1)
    access_message_in_memory_max_ratio: int = _behaviour(40, 0, 100)
    max_filter_message_size: int = _behaviour(16_000, CONSUME_QUEUE_UNIT)
    disk_fall_recorded: bool = _behaviour(True)
    offset_check_in_slave: bool = _behaviour(False)

    # -- behaviour: keeping and cleaning ------------------------------------------------------------------
    delete_when: str = _behaviour("04")
    file_reserved_time_hours: int = _behaviour(72, 0, 24 * 366 * 100)
    delete_file_batch_max: int = _behaviour(10, 1)
    disk_max_used_space_ratio: int = _behaviour(75, 10, 95)
    disk_space_clean_forcibly_ratio: int = _behaviour(85, 1, 100)
    disk_space_warning_level_ratio: int = _behaviour(90, 1, 100)
    clean_file_forcibly_enable: bool = _behaviour(True)
    clean_resource_interval_ms: int = _behaviour(10_000, 10, _DAY_MS)
    delete_commit_log_files_interval_ms: int = _behaviour(100, 0, 60_000)
    delete_consume_queue_files_interval_ms: int = _behaviour(100, 0, 60_000)
    destroy_mapped_file_interval_forcibly_ms: int = _behaviour(120_000)
    redelete_hanged_file_interval_ms: int = _behaviour(120_000)

    # -- behaviour: delay levels --------------------------------------------------------------------------
    message_delay_level: str = _behaviour(DEFAULT_DELAY_LEVELS)
    flush_delay_offset_interval_ms: int = _behaviour(10_000, 10, _DAY_MS)
    enable_schedule_async_deliver: bool = _behaviour(False)

    # -- behaviour: timer ---------------------------------------------------------------------------------
    timer_wheel_enable: bool = _behaviour(True)
    timer_precision_ms: int = _behaviour(1000, 1)
    timer_roll_window_slot: int = _behaviour(172_800)
    timer_max_delay_sec: int = _behaviour(259_200, 1)
    timer_flush_interval_ms: int = _behaviour(1000, 10, _DAY_MS)
    timer_wheel_snapshot_flush: bool = _behaviour(False)
    timer_wheel_snapshot_interval_ms: int = _behaviour(10_000, 10, _DAY_MS)
    timer_congest_num_each_slot: int = _behaviour(_INT32, 1)

    # -- behaviour: transactions --------------------------------------------------------------------------
    transaction_time_out_ms: int = _behaviour(6000, 0, _DAY_MS)
    transaction_check_max: int = _behaviour(15, 0)
    transaction_check_interval_ms: int = _behaviour(30_000, 10, _DAY_MS)
    transaction_op_msg_max_size: int = _behaviour(4096, 16)
    transaction_op_batch_interval_ms: int = _behaviour(3000, 0, _DAY_MS)

    # -- behaviour: offsets of consumer groups ------------------------------------------------------------
    flush_consumer_offset_interval_ms: int = _behaviour(5000, 10, _DAY_MS)

    # -- performance: flushing and committing the log -----------------------------------------------------
    flush_interval_commit_log_ms: int = _performance(500, 1, _DAY_MS)
    flush_commit_log_timed: bool = _performance(True)
    flush_commit_log_least_pages: int = _performance(4)
    flush_commit_log_thorough_interval_ms: int = _performance(10_000, 0, _DAY_MS)
    commit_interval_commit_log_ms: int = _performance(200, 1, _DAY_MS)
    commit_commit_log_least_pages: int = _performance(4)
    commit_commit_log_thorough_interval_ms: int = _performance(200, 0, _DAY_MS)
    flush_interval_consume_queue_ms: int = _performance(1000, 1, _DAY_MS)
    flush_consume_queue_least_pages: int = _performance(2)
    flush_consume_queue_thorough_interval_ms: int = _performance(60_000, 0, _DAY_MS)

    # -- performance: memory ------------------------------------------------------------------------------
    transient_store_pool_enable: bool = _performance(False)
    transient_store_pool_size: int = _performance(5, 1, 64)
    fast_fail_if_no_buffer_in_store_pool: bool = _performance(False)
    warm_mapped_file_enable: bool = _performance(False)
    flush_least_pages_when_warm_mapped_file: int = _performance(4096, 1)
    os_page_cache_busy_timeout_ms: int = _performance(1000, 1)
    # Ours alone: descriptors of queue files are a bounded cache, or 8 000 queues would need 8 000 of them.
    max_open_files: int = _performance(512, 16, 1 << 20)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, check(field.name, getattr(self, field.name), source="code"))
        # Normalised as RocketMQ's own setters and getters do, so that both sides make the same files.
        units = -(-self.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT)
        object.__setattr__(self, "mapped_file_size_consume_queue", units * CONSUME_QUEUE_UNIT)
        precision = next((p for p in (1000, 500, 200) if self.timer_precision_ms >= p), 100)
        object.__setattr__(self, "timer_precision_ms", precision)

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of each level in milliseconds; level ``n`` is item ``n - 1``."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def delete_hours(self) -> frozenset[int]:
        """Hours of the day (local time) at which expired files go."""
        return frozenset(int(hour) for hour in self.delete_when.split(";"))

    def replace(self, **changes: Any) -> StoreConfig:
        """A copy with some settings changed, checked like any other; itself if they are so already."""
        if all(_same(getattr(self, name, _same), value) for name, value in changes.items()):
            return self
        return dataclasses.replace(self, **changes)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


LIMITS: dict[str, Limits] = {
    field.name: field.metadata["limits"] for field in dataclasses.fields(StoreConfig)
}
TYPES: dict[str, type] = {field.name: type(field.default) for field in dataclasses.fields(StoreConfig)}


def group_of(field: str) -> Group:
    """``behaviour`` or ``performance``."""
    return LIMITS[field].group


def check(field: str, value: Any, *, source: str) -> Any:
    """The value itself, or ConfigError naming the key and where the value came from."""

    def wrong(why: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{field} = {value!r} (from {source}): {why}", key=field, source=source, hint=hint)

    expected, limits = TYPES[field], LIMITS[field]
    actual: type = type(value)  # not isinstance: True is no number here
    if actual is not expected:
        raise wrong(f"must be {_TYPE_NAMES[expected]}")
    if expected is int and not (limits.low or 0) <= value <= (limits.high or 0):
        raise wrong(f"must be between {limits.low} and {limits.high}")
    if limits.choices and value not in limits.choices:
        raise wrong(f"must be one of {', '.join(limits.choices)}")
    if field == "message_delay_level":
        try:
            parse_delay_levels(value)
        except ValueError as error:
            raise wrong(str(error)) from None
    elif field == "delete_when":
        if not re.fullmatch(r"([01]?\d|2[0-3])(;([01]?\d|2[0-3]))*", value, re.ASCII):
            raise wrong("must be hours of the day such as 04 or 02;04;16")
    elif field == "store_host":
        _check_host(value, wrong)
    return value


def _check_host(value: str, wrong: Callable[..., ConfigError]) -> None:
    host, _, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise wrong("must be an address and a port", "such as 127.0.0.1:10911 or [::1]:10911") from None
    if not (port.isascii() and port.isdigit() and int(port) <= 0xFFFF):
        raise wrong("the port must be a number up to 65535")


_TYPE_NAMES = {int: "a whole number", bool: "true or false", str: "text"}
