"""Penstock: a durable message log that keeps Apache RocketMQ's bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock.config import StoreConfig
from penstock.errors import PenstockError
from penstock.message import Message

if TYPE_CHECKING:
    from penstock.client import Consumer, Producer, PullConsumer
    from penstock.store.messagestore import MessageStore
    from penstock.store.readonly import ReadOnlyStore

__version__ = "0.1.0"
__all__ = ["Consumer", "Message", "PenstockError", "Producer", "PullConsumer", "StoreConfig", "open_store"]


def __getattr__(name: str) -> Any:
    # The client brings the network with it, which a store does not need.
    if name in ("Consumer", "Producer", "PullConsumer"):
        import penstock.client

        return getattr(penstock.client, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def open_store(
    path: str | os.PathLike[str],
    *,
    flush: str | None = None,
    read_only: bool = False,
    config: StoreConfig | None = None,
    **options: Any,
) -> MessageStore | ReadOnlyStore:
    """Open a store directory, Penstock's or RocketMQ's; it is made if it is not there.

    ``flush="sync"`` (the default): an acknowledged message is on disk. ``"async"``: it is with the system,
    and on disk
    a moment later. ``read_only`` takes no lock and writes nothing, beside a running writer too. Sizes of
    existing files win over ``config``. The result is a context manager.
    """
    if read_only:
        from penstock.store.readonly import ReadOnlyStore

        return ReadOnlyStore(path, config=config, **options)
    from penstock.store.opening import open_writable

    return open_writable(path, flush=flush, config=config, **options)
