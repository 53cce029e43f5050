"""Names of queues at brokers, where the rest of the source knows a topic and a number."""

from __future__ import annotations

from penstock.client.queue import MessageQueue
from penstock.spark.ranges import QueueKey


def key_of(queue: MessageQueue) -> QueueKey:
    """``("orders@broker-a", 3)``."""
    return f"{queue.topic}@{queue.broker_name}", queue.queue_id


def queue_of(key: QueueKey) -> MessageQueue:
    """The queue of such a key."""
    topic, _, broker = key[0].partition("@")
    return MessageQueue(topic, broker, key[1])


def topic_of(name: str) -> str:
    """The topic of ``orders@broker-a``, and of ``orders``."""
    return name.partition("@")[0]
