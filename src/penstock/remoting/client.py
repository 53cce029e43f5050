"""A pool of connections: one per address, made when needed, made anew when lost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping

from penstock.config.remoting import RemotingSettings
from penstock.errors import ConnectionLost, UsageError
from penstock.remoting.command import Command
from penstock.remoting.connection import Connection, Handler
from penstock.remoting.tls import TlsLayer


class RemotingClient:
    """Calls servers by address ("host:port"). ``handlers`` serve the requests that servers send to us."""

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        settings: RemotingSettings | None = None,
        *,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, str], None] | None = None,
        tls: ssl.SSLContext | None = None,
        sign: Callable[[Command], None] | None = None,
    ) -> None:
        self._tls = tls
        self._sign = sign
        self.handlers = handlers if handlers is not None else {}
        self.settings = settings or RemotingSettings()
        self.connections: dict[str, Connection] = {}
        self._on_open = on_open
        self._on_close = on_close
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        # Per address: failures in a row, and when the next try is allowed.
        self._failures: dict[str, tuple[int, float]] = {}
        self._closed = False

    async def call(self, address: str, command: Command, timeout: float | None = None) -> Command:
        """The answer, whatever its code. ``timeout`` covers connecting too."""
        loop = asyncio.get_running_loop()
        limit = self.settings.call_timeout_seconds if timeout is None else timeout
        deadline = loop.time() + limit
        connection = self.connections.get(address)
        if connection is None or connection.closed:
            connection = await self.connect(address, limit)
        return await connection.call(command, max(deadline - loop.time(), 0.001))

    async def oneway(self, address: str, command: Command, timeout: float | None = None) -> None:
        """Send and expect nothing. Returns when the request is written, not when it arrived."""
        connection = self.connections.get(address)
        if connection is None or connection.closed:
            connection = await self.connect(address, timeout)
        connection.send(command)

    async def connect(self, address: str, timeout: float | None = None) -> Connection:
        """The connection to an address, made if there is none. Raises ConnectionLost."""
        if self._closed:
            raise ConnectionLost("the client is closed")
        connection = self.connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._connecting[address] = task
            task.add_done_callback(lambda _: self._connecting.pop(address, None))
            task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        limit = self.settings.connect_timeout_seconds if timeout is None else timeout
        try:
            # Shielded: others may wait for the same connection.
            return await asyncio.wait_for(asyncio.shield(task), limit)
        except TimeoutError:
            raise ConnectionLost(f"can't connect to {address} within {limit:g} s") from None

    async def close(self) -> None:
        """Close every connection; calls under way fail with ConnectionLost."""
        self._closed = True
        for task in list(self._connecting.values()):
            task.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        for connection in list(self.connections.values()):
            connection.close("the client closes")
        # One pass of the loop: the transports tell their connections.
        await asyncio.sleep(0)

    async def _connect(self, address: str) -> Connection:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        settings = self.settings
        failures, allowed = self._failures.get(address, (0, 0.0))
        if (wait := allowed - loop.time()) > 0:
            await asyncio.sleep(wait)

        def make() -> Connection:
            made = Connection(
                self.handlers, settings, on_open=self._on_open, on_close=self._lost_connection(address)
            )
            made.sign = self._sign
            return made

        try:
            async with asyncio.timeout(settings.connect_timeout_seconds):
                connection = await self._reach(host, port, make)
        except (TimeoutError, OSError, ConnectionLost) as error:
            delay = min(settings.reconnect_delay_seconds * 2**failures, settings.max_reconnect_delay_seconds)
            self._failures[address] = (min(failures + 1, 16), loop.time() + delay)
            raise ConnectionLost(
                f"can't connect to {address}: {error or 'no answer in time'}",
                hint="is the broker running, and is this the address it listens on?",
            ) from None
        self._failures.pop(address, None)
        self.connections[address] = connection
        return connection

    async def _reach(self, host: str, port: int, make: Callable[[], Connection]) -> Connection:
        """A connection that can be spoken on; with TLS that is after the handshake."""
        loop = asyncio.get_running_loop()
        context = self._tls
        if context is None:
            return (await loop.create_connection(make, host, port))[1]
        raw, layer = await loop.create_connection(
            lambda: TlsLayer(make(), context, server_side=False, server_name=host), host, port
        )
        assert layer.ready is not None
        try:
            return await layer.ready
        except BaseException:
            raw.abort()
            raise

    def _lost_connection(self, address: str) -> Callable[[Connection, str], None]:
        def lost(connection: Connection, reason: str) -> None:
            if self.connections.get(address) is connection:
                del self.connections[address]
            if self._on_close is not None:
                self._on_close(connection, reason)

        return lost


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9876", "[::1]:9876" or a host name with a port."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= 0xFFFF):
        raise UsageError(f"{address!r} is no address", hint="host and port, such as 127.0.0.1:9876")
    return host, int(port)
