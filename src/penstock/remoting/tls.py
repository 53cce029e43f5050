"""TLS between a transport and a connection, and the look at the first byte that finds out who wants it.

The handshake and the records go through OpenSSL's memory buffers here, not through the event loop's own TLS:
only so can bytes that are already read decide, and the answers of one turn leave as few large records.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Iterable
from typing import Any, cast

from penstock.errors import ConnectionLost
from penstock.remoting.connection import Buffer, Connection
from penstock.remoting.sparing import SparingLog
from penstock.remoting.tlscontext import ServerTls

log = logging.getLogger("penstock.remoting")
refusals = SparingLog(log)

HANDSHAKE = 0x16
"""First byte of a ClientHello. A frame begins with 0: it is shorter than 16 MiB (protocol 1.6)."""
SCRATCH_BYTES = 256 << 10


class _Scratch(threading.local):
    """Room to decrypt into: free again before anything else runs, so one serves all connections of a loop."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_BYTES))


_scratch = _Scratch()


class TlsLayer(asyncio.Protocol):
    """A protocol to the transport below, a transport to the connection above."""

    def __init__(
        self,
        connection: Connection,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_name: str | None = None,
    ) -> None:
        self._connection = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._server_side = server_side
        self._raw: asyncio.Transport | None = None
        self._shaken = False
        self._failure = ""
        self._scratch = _scratch.view
        self.ready: asyncio.Future[Connection] | None = None
        if not server_side:
            self.ready = asyncio.get_running_loop().create_future()

    # -- towards the network ------------------------------------------------------------------------------

    def begin(self, raw: asyncio.Transport, data: bytes) -> None:
        """Take over a transport whose first bytes are already here; the connection knows it already."""
        self._raw = raw
        raw.set_protocol(self)
        connection = self._connection
        connection.speak_through(cast(asyncio.Transport, self))
        # The sweep of the server closes who begins a handshake and does not end it.
        connection.partial_since = connection.last_active = asyncio.get_running_loop().time()
        self.data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._shake()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._shaken or self._shake():
            self._read()

    def eof_received(self) -> None:
        return None

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._shaken and not self._failure:
            self._failure = f"the TLS handshake was not finished: {exc or 'closed by the peer'}"
            self._refused()
        if self.ready is None or self._shaken:
            self._connection.connection_lost(exc)

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_outgoing()
            return False
        except (ssl.SSLError, ssl.CertificateError, ValueError) as error:
            self._send_outgoing()  # the alert that says why
            self._fail(error)
            return False
        self._shaken = True
        connection = self._connection
        if self._server_side:
            connection.partial_since = 0.0
        else:
            connection.connection_made(cast(asyncio.BaseTransport, self))
        self._send_outgoing()
        if self.ready is not None and not self.ready.done():
            self.ready.set_result(connection)
        return True

    def _fail(self, error: Exception) -> None:
        reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
        self._failure = f"TLS: {reason}"
        if not self._shaken:
            self._refused()
        if self._server_side or self._shaken:
            self._connection.close(self._failure)
        elif self._raw is not None:
            self._raw.close()

    def _refused(self) -> None:
        if self._server_side:
            refusals.line(logging.WARNING, "closed %s: %s", self._connection.peer_text, self._failure)
        elif self.ready is not None and not self.ready.done():
            self.ready.set_exception(ConnectionLost(self._failure))

    def _read(self) -> None:
        tls, incoming, scratch = self._tls, self._incoming, self._scratch
        size = len(scratch)
        received = self._connection.data_received
        more = True
        while more and not self._connection.closed:
            used = 0
            try:
                while used < size and (incoming.pending or tls.pending()):
                    got = tls.read(size - used, scratch[used:])
                    if not got:
                        raise ssl.SSLZeroReturnError
                    used += got  # type: ignore[operator]
                more = used == size
            except ssl.SSLWantReadError:
                more = False
            except ssl.SSLZeroReturnError:
                if used:
                    received(bytes(scratch[:used]))
                self._connection.close("closed by the peer")
                return
            except ssl.SSLError as error:
                self._fail(error)
                return
            if used:
                received(bytes(scratch[:used]))
        if self._outgoing.pending:
            self._send_outgoing()  # what TLS itself has to say, such as another key

    def _send_outgoing(self) -> None:
        if self._raw is not None and self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    # -- towards the connection ---------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, pieces: Iterable[Buffer]) -> None:
        if not self._shaken:
            return
        try:
            self._tls.write(b"".join(pieces))
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._send_outgoing()

    def close(self) -> None:
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        if self._shaken and not self._failure:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # ours is said; the peer's farewell is not waited for
            self._send_outgoing()
        raw.close()

    def abort(self) -> None:
        if not self._shaken and not self._failure:
            self._failure = "the TLS handshake was not finished in time"
            self._refused()
        if self._raw is not None:
            self._raw.abort()

    def pause_reading(self) -> None:
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._raw is not None:
            self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high=high, low=low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            return self._tls.getpeercert()
        return default if self._raw is None else self._raw.get_extra_info(name, default)


class Doorman(asyncio.Protocol):
    """Looks at the first byte of a new connection and hands it to whom it belongs. Then it is gone."""

    __slots__ = ("_connection", "_raw", "_tls")

    def __init__(self, connection: Connection, tls: ServerTls | None) -> None:
        self._connection = connection
        self._tls = tls
        self._raw: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        connection, tls, raw = self._connection, self._tls, self._raw
        assert raw is not None
        if data[0] == HANDSHAKE:
            if tls is None or tls.context is None:
                off = tls is not None and tls.settings.mode == "disabled"
                self._refuse("TLS is disabled here" if off else "it speaks TLS and there is no certificate")
            else:
                TlsLayer(connection, tls.context, server_side=True).begin(raw, data)
        elif tls is not None and tls.settings.mode == "enforcing":
            self._refuse("it speaks without TLS, which is enforced")
        else:
            raw.set_protocol(connection)
            connection.data_received(data)

    def _refuse(self, why: str) -> None:
        refusals.line(logging.WARNING, "closed %s: %s", self._connection.peer_text, why)
        self._connection.abort(why)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
