"""A name server on a port: the routes, their requests, and the look-out for brokers that fell silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType

from penstock.config.remoting import RemotingSettings
from penstock.errors import UsageError
from penstock.namesrv.requests import handlers
from penstock.namesrv.routes import NameServer
from penstock.remoting import Connection, Handler, RemotingServer
from penstock.security.guard import Guard

log = logging.getLogger("penstock.namesrv")


class NameServerService:
    """Serves one NameServer, of its own or one that a broker in this process uses too."""

    def __init__(
        self,
        name_server: NameServer | None = None,
        settings: RemotingSettings | None = None,
        guard: Guard | None = None,
    ) -> None:
        """``guard`` belongs to whoever made it: it is not started and not stopped here."""
        self.name_server = name_server or NameServer()
        served: Mapping[int, Handler] = handlers(self.name_server)
        if guard is not None:
            served = guard.before(served)
        self._server = RemotingServer(
            served, settings, on_close=self._lost, tls=None if guard is None else guard.tls
        )
        self._scanner: asyncio.Task[None] | None = None
        self.address = ""

    async def start(self, host: str = "127.0.0.1", port: int = 9876) -> str:
        """Listen, on a free port if ``port`` is 0; the address."""
        if self._scanner is not None:
            raise UsageError("this name server runs already")
        port = await self._server.start(host, port)
        self._scanner = asyncio.get_running_loop().create_task(self._scan())
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self.address

    async def stop(self) -> None:
        """Close the port and every connection. May be called twice."""
        if self._scanner is not None:
            self._scanner.cancel()
            self._scanner = None
        await self._server.stop()

    async def __aenter__(self) -> NameServerService:
        if self._scanner is None:
            await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(self.name_server.settings.scan_seconds)
            for address in self.name_server.expire():
                log.warning("broker %s was silent for too long and is taken out of the routes", address)

    def _lost(self, connection: Connection, reason: str) -> None:
        self.name_server.lost(connection)
