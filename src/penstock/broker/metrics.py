"""What a broker tells Prometheus. RocketMQ's names where it has them, so its dashboards work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

Labels = dict[str, str]
Sample = tuple[Labels, float]


def render_metrics(broker: Broker) -> str:
    """The text format of Prometheus, version 0.0.4."""
    lines: list[str] = []
    own = {"cluster": broker.config.cluster_name, "node_id": broker.config.broker_name}
    for name, kind, text, samples in _families(broker):
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        lines += [f"{name}{_labels({**own, **labels})} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(broker: Broker) -> Iterator[tuple[str, str, str, list[Sample]]]:
    stats, store = broker.stats, broker.store.stats()
    put, got = list(stats.put.items()), list(stats.get.items())
    yield (
        "rocketmq_messages_in_total",
        "counter",
        "Messages stored for producers.",
        [({"topic": topic}, counter.messages) for topic, counter in put],
    )
    yield (
        "rocketmq_throughput_in_total",
        "counter",
        "Bytes of messages stored for producers.",
        [({"topic": topic}, counter.bytes) for topic, counter in put],
    )
    yield (
        "rocketmq_messages_out_total",
        "counter",
        "Messages handed to consumers.",
        [({"topic": topic, "consumer_group": group}, each.messages) for (topic, group), each in got],
    )
    yield (
        "rocketmq_throughput_out_total",
        "counter",
        "Bytes of messages handed to consumers.",
        [({"topic": topic, "consumer_group": group}, each.bytes) for (topic, group), each in got],
    )
    yield (
        "rocketmq_send_to_dlq_or_retry_messages_total",
        "counter",
        "Messages that consumers sent back.",
        [
            ({"topic": topic, "consumer_group": group}, each.messages)
            for (topic, group), each in list(stats.sent_back.items())
        ],
    )
    yield (
        "rocketmq_consumer_lag_messages",
        "gauge",
        "Messages a group has not consumed yet.",
        list(_lags(broker)),
    )
    yield (
        "rocketmq_consumer_inflight_messages",
        "gauge",
        "Messages that were popped and are not acked.",
        [
            ({"topic": topic, "consumer_group": group}, count)
            for (topic, group), count in broker.popping.inflight.of_groups().items()
        ],
    )
    yield (
        "rocketmq_consumer_connections",
        "gauge",
        "Connected consumers.",
        [({"consumer_group": group.name}, len(group.members)) for group in broker.consumers],
    )
    yield (
        "rocketmq_producer_connections",
        "gauge",
        "Connected producers.",
        [({"producer_group": group}, len(members)) for group, members in broker.producers],
    )
    for name, kind, text, value in (
        ("rocketmq_topic_number", "gauge", "Topics.", len(broker.topics)),
        ("rocketmq_consumer_group_number", "gauge", "Consumer groups.", len(broker.groups)),
        (
            "rocketmq_storage_size",
            "gauge",
            "Bytes between the first and the last message of the log.",
            store.max_physical_offset - store.min_physical_offset,
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "gauge",
            "Bytes of the log that are not readable yet.",
            max(store.dispatch_behind_bytes, 0),
        ),
        (
            "rocketmq_storage_flush_behind_bytes",
            "gauge",
            "Bytes of the log that are not on disk yet.",
            max(store.max_physical_offset - store.flushed_where, 0),
        ),
        ("penstock_disk_used_ratio", "gauge", "How full the disk of the store is.", store.disk_used),
        ("penstock_log_syncs_total", "counter", "Syncs of the log.", store.sync_count),
        ("penstock_put_failures_total", "counter", "Sends that were refused.", stats.put_failures),
        ("penstock_held_pulls", "gauge", "Pulls that wait for messages.", len(broker.holding)),
        ("penstock_held_pops", "gauge", "Pops that wait for messages.", len(broker.popping.holding)),
        (
            "penstock_pop_checkpoints",
            "gauge",
            "Checkpoints of pops that are about to be judged.",
            broker.popping.revive.waiting,
        ),
        (
            "penstock_pop_revived_total",
            "counter",
            "Popped messages that nobody acked in time and that were put back.",
            broker.popping.revive.revived,
        ),
        ("penstock_connections", "gauge", "Open connections.", broker.connection_count),
        ("penstock_start_time_seconds", "gauge", "When the broker started.", broker.started_ms / 1000),
        ("process_resident_memory_bytes", "gauge", "Memory of the process.", _resident_bytes()),
    ):
        yield name, kind, text, [({}, float(value))]


def _lags(broker: Broker) -> Iterator[Sample]:
    for (topic, group), queues in broker.consumer_offsets.table().items():
        lag = sum(max(broker.store.max_offset(topic, queue) - offset, 0) for queue, offset in queues.items())
        yield {"topic": topic, "consumer_group": group}, lag


def _resident_bytes() -> int:
    """Zero where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
