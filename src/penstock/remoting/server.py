"""A listening port: accepts connections, watches over them, drains and stops."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping

from penstock.config.remoting import RemotingSettings
from penstock.errors import ListenFailed
from penstock.remoting.connection import Connection, Handler, PartialBudget
from penstock.remoting.sparing import SparingLog
from penstock.remoting.tls import Doorman
from penstock.remoting.tlscontext import ServerTls

log = logging.getLogger("penstock.remoting")
refusals = SparingLog(log)

__all__ = ["Handler", "RemotingServer"]


class RemotingServer:
    """Serves requests by their code.

    A handler runs on the loop. A Command it returns is the answer; None means it answers later through
    ``connection.reply`` (or never: one-way); an awaitable is run as a task. An exception becomes an answer
    of code 1, RequestRefused the answer it names.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        settings: RemotingSettings | None = None,
        *,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, str], None] | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.handlers = handlers
        self.settings = settings or RemotingSettings()
        self.connections: set[Connection] = set()
        self.tls = tls
        self._by_address: dict[str, int] = {}
        self._on_open = on_open
        self._on_close = on_close
        self._budget = PartialBudget(self.settings.max_partial_bytes)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._quiet = asyncio.Event()

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port: a free one if ``port`` is 0. Raises ListenFailed."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._connection, host, port, backlog=1024)
        except OSError as error:
            raise listen_failed(host, port, error) from error
        self._schedule_sweep()
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def partial_bytes(self) -> int:
        """What all connections hold of frames that are not whole yet."""
        return self._budget.used

    async def drain(self, timeout: float) -> None:
        """Accept nothing more, read nothing more, then wait until all answers owed are written and sent.

        Returns after ``timeout`` seconds at the latest, with whatever is still owed.
        """
        self._stop_listening()
        for connection in list(self.connections):
            connection.stop_reading()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while any(self._busy()) and loop.time() < deadline:
            await asyncio.sleep(0.002)

    async def stop(self) -> None:
        """Close the port and every connection, and wait until all are gone."""
        self._stop_listening()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self.connections):
            connection.close("the server stops")
        if self.connections:
            self._quiet.clear()
            try:
                await asyncio.wait_for(self._quiet.wait(), 1.0)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort("the server stops")
                await self._quiet.wait()

    def _connection(self) -> Doorman:
        connection = Connection(
            self.handlers,
            self.settings,
            on_open=self._opened,
            on_close=self._closed,
            budget=self._budget,
        )
        return Doorman(connection, self.tls)

    def _opened(self, connection: Connection) -> bool:
        settings, host = self.settings, connection.peer[0]
        mine = self._by_address.get(host, 0)
        if len(self.connections) >= settings.max_connections:
            return self._refuse(connection, f"{len(self.connections)} connections are open")
        if 0 < settings.max_connections_per_address <= mine:
            return self._refuse(connection, f"{mine} connections from there are open")
        self._by_address[host] = mine + 1
        self.connections.add(connection)
        if self._on_open is not None:
            self._on_open(connection)
        return True

    def _refuse(self, connection: Connection, why: str) -> bool:
        refusals.line(logging.WARNING, "refused %s: %s", connection.peer_text, why)
        return False

    def _closed(self, connection: Connection, reason: str) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        host = connection.peer[0]
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]
        if not self.connections:
            self._quiet.set()
        if self._on_close is not None:
            self._on_close(connection, reason)

    def _busy(self) -> Iterator[Connection]:
        return (each for each in self.connections if not each.closed and (each.owed or each.unsent))

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _schedule_sweep(self) -> None:
        """One timer for all connections: five thousand idle ones must not cost five thousand timers."""
        settings = self.settings
        shortest = min(
            settings.idle_close_seconds, settings.frame_deadline_seconds, settings.write_stall_seconds
        )
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(max(shortest / 8, 0.005), self._sweep)

    def _frame_seconds(self, connection: Connection) -> float:
        """How long the unfinished frame of a connection may take, for what has come of it."""
        settings = self.settings
        return settings.frame_deadline_seconds + connection.partial_size / settings.slowest_bytes_per_second

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        settings = self.settings
        for each in list(self.connections):
            if each.partial_since and now - each.partial_since > self._frame_seconds(each):
                each.abort("a frame was begun and not finished in time")
            elif each.stalled_since and now - each.stalled_since > settings.write_stall_seconds:
                each.abort("the peer takes no answers")
            elif now - each.last_active > settings.idle_close_seconds:
                each.close("idle")
        self._schedule_sweep()


def listen_failed(host: str, port: int, error: OSError) -> ListenFailed:
    """What a refused port means, for people."""
    why = os.strerror(error.errno) if error.errno else str(error)
    taken = error.errno == errno.EADDRINUSE
    hint = "another broker or name server may run there; 0 takes a free port" if taken else ""
    return ListenFailed(f"can't listen on {host}:{port}: {why}", hint=hint)
