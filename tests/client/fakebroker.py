"""A server that answers what a test tells it to: for what a healthy broker does not do."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

from penstock.config.remoting import RemotingSettings
from penstock.remoting import Command, Connection, Handler, RemotingServer


class FakeBroker:
    """Name server and broker on one port. ``handlers`` win over the few answers it has by itself."""

    def __init__(self, handlers: dict[int, Handler] | None = None, queues: int = 1) -> None:
        self.asked: list[Command] = []
        self.connections: list[Connection] = []
        self.queues = queues
        self.port = 0
        table: dict[int, Handler] = {105: self._route, 34: self._plain, 35: self._plain, **(handlers or {})}
        self._server = RemotingServer(table, RemotingSettings(), on_open=self.connections.append)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _plain(self, connection: Connection, request: Command) -> Command:
        self.asked.append(request)
        return request.answer()

    def _route(self, connection: Connection, request: Command) -> Command:
        route = {
            "brokerDatas": [{"brokerAddrs": {"0": self.address}, "brokerName": "fake", "cluster": "c"}],
            "queueDatas": [
                {"brokerName": "fake", "perm": 6, "readQueueNums": self.queues, "writeQueueNums": self.queues}
            ],
        }
        return request.answer(body=json.dumps(route).encode())

    async def __aenter__(self) -> Self:
        self.port = await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop()
