"""A small web port for people and monitoring: ``/metrics``, ``/health``, and a page that names them."""

from __future__ import annotations

import asyncio
import html
import json
from typing import TYPE_CHECKING

from penstock.broker.metrics import render_metrics
from penstock.remoting.server import listen_failed

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

MAX_HEAD = 8192
MAX_CONNECTIONS = 64
DEADLINE_SECONDS = 5.0
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS |= {500: "Internal Server Error", 503: "Service Unavailable"}


class HttpPort:
    """One request a connection, answered from memory and closed. Nothing can be changed through it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._open = 0
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen, on a free port if ``port`` is 0; the port."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD)
        except OSError as error:
            raise listen_failed(host, port, error) from error
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                if self._open > MAX_CONNECTIONS:
                    status, kind, body = 503, "text/plain", "too many connections\n"
                else:
                    status, kind, body = await self._answer(reader)
                data = body.encode()
                head = (
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}; charset=utf-8\r\n"
                    f"Content-Length: {len(data)}\r\nConnection: close\r\n"
                    "X-Content-Type-Options: nosniff\r\n\r\n"
                )
                writer.write(head.encode() + data)
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # too slow, or gone: nobody is left to tell
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str, str]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return 400, "text/plain", "the request is too long\n"
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            return 400, "text/plain", "no HTTP request\n"
        if words[0] != b"GET":
            return 405, "text/plain", "only GET is served here\n"
        path = words[1].split(b"?", 1)[0]
        if path == b"/metrics":
            return 200, "text/plain; version=0.0.4", render_metrics(self._broker)
        if path == b"/health":
            return self._health()
        if path == b"/":
            return 200, "text/html", self._page()
        return 404, "text/plain", "there are /, /health and /metrics\n"

    def _health(self) -> tuple[int, str, str]:
        faults = self._broker.faults()
        body = {
            "status": "ok" if not faults else "failing",
            "faults": faults,
            "broker": self._broker.config.broker_name,
            "address": self._broker.address,
        }
        return (503 if faults else 200), "application/json", json.dumps(body) + "\n"

    def _page(self) -> str:
        broker = self._broker
        faults = "".join(f"<li>{html.escape(fault)}" for fault in broker.faults())
        rows = {
            "broker": f"{broker.config.broker_name} in {broker.config.cluster_name}",
            "address": broker.address,
            "name server": broker.namesrv_address,
            "store": broker.store.path,
            "topics": str(len(broker.topics)),
            "groups": str(len(broker.groups)),
            "connections": str(broker.connection_count),
        }
        table = "".join(f"<tr><th>{name}<td>{html.escape(value)}" for name, value in rows.items())
        state = f"<p>Failing:<ul>{faults}</ul>" if faults else "<p>All is well."
        return (
            "<!doctype html><html lang=en><meta charset=utf-8><title>Penstock</title>"
            "<style>body{font:16px/1.5 system-ui;margin:2rem auto;max-width:40rem}th{text-align:left;"
            "padding-right:1rem}</style><h1>Penstock</h1>"
            f"{state}<table>{table}</table><p><a href=/metrics>metrics</a> "
            "<a href=/health>health</a></html>\n"
        )
