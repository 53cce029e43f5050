"""A broker in a thread of the test process: real ports, real files, small ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.broker import Broker
from penstock.config import BrokerConfig, StoreConfig
from penstock.errors import PenstockError
from penstock.remoting.loop import new_event_loop

if TYPE_CHECKING:
    from penstock.store.messagestore import MessageStore

T = TypeVar("T")

SMALL_STORE = StoreConfig(
    mapped_file_size_commit_log=16 << 20,
    mapped_file_size_consume_queue=6000 * 20,
    max_hash_slot_num=5000,
    max_index_num=20_000,
)
_WAIT_SECONDS = 60.0


class RunningBroker:
    """A broker and its name server on free ports, served by a thread. A context manager.

    It keeps its promises as any broker does: an acknowledged message is on disk. ``stop`` and ``start`` again
    keep directory and ports. ``settings`` are those of :class:`penstock.config.BrokerConfig`.
    """

    def __init__(self, path: str | Path, **settings: Any) -> None:
        self.path = Path(path)
        self._settings: dict[str, Any] = {
            "store": SMALL_STORE,
            "listen_port": 0,
            "namesrv_port": 0,
            **settings,
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The broker itself. It lives on its own loop: see ``run``."""
        if self._broker is None:
            raise PenstockError("the broker is not running")
        return self._broker

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.broker.address

    @property
    def namesrv(self) -> str:
        """What clients are told."""
        return self.broker.namesrv_address

    @property
    def store(self) -> MessageStore:
        """Its store, for looking at what came of it."""
        return self.broker.store

    def create_topic(self, name: str, queues: int = 4) -> None:
        """A topic with so many queues, as an administrator makes it; clients find it at once."""

        async def work() -> None:
            self.broker.topics.ensure(name, queues)

        self.run(work())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the broker's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_SECONDS)

    def start(self) -> None:
        """Serve. Returns when clients can connect."""
        if self._thread is not None:
            raise PenstockError("the broker runs already")
        broker = Broker(BrokerConfig(store_path=str(self.path), **self._settings))
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-test-broker", daemon=True
        )
        self._thread.start()
        try:
            self.run(broker.start())
        except BaseException:
            self._end_thread()
            raise
        self._broker = broker
        # The same ports after a restart: clients come back by themselves.
        self._settings["listen_port"] = _port(broker.address)
        self._settings["namesrv_port"] = _port(self.namesrv)

    def stop(self) -> None:
        """Stop in order. Harmless when it does not run."""
        if self._broker is None:
            return
        broker, self._broker = self._broker, None
        try:
            self.run(broker.stop())
        finally:
            self._end_thread()

    def restart(self) -> None:
        """Stop and start, on the same directory and ports."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end_thread(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_WAIT_SECONDS)
            loop.close()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
