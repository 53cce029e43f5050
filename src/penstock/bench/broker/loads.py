"""What is sent: the loads that the Java client drives, the same for every broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Flush = Literal["async", "sync"]


@dataclass(frozen=True, slots=True)
class Load:
    """So many senders of one message size; ``at_least`` is what our rate should be, to RocketMQ's."""

    key: str
    work: str
    flush: Flush
    at_least: float
    senders: int = 1
    size: int = 1024
    batch: int = 1
    in_flight: int = 0
    consumed: bool = False

    def command(self, namesrv: str, topic: str, seconds: float) -> dict[str, Any]:
        """As arguments of the driver's ``load`` or ``consume-load``."""
        wanted = {
            "senders": self.senders,
            "size": self.size,
            "batch": self.batch,
            "in_flight": self.in_flight,
        }
        return {"namesrv": namesrv, "topic": topic, "seconds": seconds, **wanted}

    @property
    def do(self) -> str:
        """The driver's command."""
        return "consume-load" if self.consumed else "load"


LOADS: tuple[Load, ...] = (
    Load("async-64-128", "async flush, 64 senders, 128 B", "async", 1.5, 64, 128),
    Load("async-64-1k", "async flush, 64 senders, 1 KiB", "async", 1.5, 64),
    Load("async-16-1k", "async flush, 16 senders, 1 KiB", "async", 1.5, 16),
    Load("async-1-128", "async flush, 1 sender, 128 B", "async", 1.3, 1, 128),
    Load("client-async", "async sends of the client, 1 KiB", "async", 1.5, 2, in_flight=512),
    Load("batch-64", "batch of 32, 64 senders, 1 KiB", "async", 1.2, 64, batch=32),
    Load("consume", "produce and consume, 16 senders, 1 KiB", "async", 1.5, 16, consumed=True),
    Load("sync-64-1k", "sync flush, 64 senders, 1 KiB", "sync", 2.0, 64),
    Load("sync-16-1k", "sync flush, 16 senders, 1 KiB", "sync", 2.0, 16),
    Load("sync-1-1k", "sync flush, 1 sender, 1 KiB", "sync", 1.2, 1),
)
