"""Who of a group reads which queues: RocketMQ's average allocation (protocol 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Q = TypeVar("Q")


def allocate_averagely(queues: Sequence[Q], clients: Sequence[str], client: str) -> list[Q]:
    """The share of one client: a run of neighbouring queues, the first clients get one more.

    Queues and clients must be sorted the same way by every member. A client that is not listed gets nothing,
    so that no two members ever take the same queue from one list.
    """
    if client not in clients:
        return []
    index = clients.index(client)
    rest = len(queues) % len(clients)
    size = 1 if len(queues) <= len(clients) else len(queues) // len(clients) + (1 if index < rest else 0)
    start = index * size if index < rest else index * size + rest
    return list(queues[start : start + size])
