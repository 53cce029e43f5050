"""A broker that serves the messages of the bench from the very directory that the other sides read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.spark.data import QUEUES, TOPICS
from penstock.client.admin import Admin
from penstock.errors import PenstockError

_READY_SECONDS = 60.0
LIVE = ("live", "loop")
"""Sources that read from a broker; their path is the address of its name server."""


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """The address of a name server while a broker of its own process has the store open."""
    with TemporaryDirectory(prefix="live-", dir=store.parent) as name:
        folder = Path(name)
        (folder / "store").symlink_to(store, target_is_directory=True)
        broker = PenstockBroker(folder)
        with broker:
            asyncio.run(_make_topics(broker.namesrv))
            yield broker.namesrv


async def _make_topics(namesrv: str) -> None:
    """The name server may listen a moment after the broker."""
    async with asyncio.timeout(_READY_SECONDS), Admin(namesrv) as admin:
        while True:
            try:
                for number in range(TOPICS):
                    await admin.create_topic(f"bench-{number:02d}", queues=QUEUES)
                return
            except PenstockError:
                await asyncio.sleep(0.1)
