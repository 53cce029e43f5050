"""One connection: frames in, frames out, answers matched to calls. The same class on both sides."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from penstock._native.wire import take_frames
from penstock._native.wireout import plain_answers
from penstock.config.remoting import RemotingSettings
from penstock.errors import ConnectionLost, RemotingTimeout, RequestRefused
from penstock.remoting.codes import ResponseCode
from penstock.remoting.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    encode,
    encode_head,
    tolerant_header,
)

log = logging.getLogger("penstock.remoting")

Buffer: TypeAlias = bytes | bytearray | memoryview
Handler: TypeAlias = "Callable[[Connection, Command], Command | Awaitable[Command | None] | None]"
_NOBODY = ("", 0)
_INT32_HIGH = 2**31 - 1
_LENGTHS = 8  # bytes of a frame that say how long it is, and its header
FLUSH_BYTES = 256 << 10
"""Written in one turn of the loop and handed to the transport before it ends: pulls can be large."""


class AnswerSink(Protocol):
    """Who waits for an answer: a future, or what does without a further pass of the loop."""

    def done(self) -> bool: ...

    def set_result(self, answer: Command, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class PartialBudget:
    """What all connections of one server together hold of frames that are not whole yet."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Connection(asyncio.Protocol):
    """A peer that sends us requests and answers ours.

    Everything runs on the loop. ``context`` belongs to whoever owns the connection (a broker keeps the
    client's registrations there). After ``closed`` sending is silent and calling raises ConnectionLost.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        settings: RemotingSettings,
        *,
        on_open: Callable[[Connection], bool | None] | None = None,
        on_close: Callable[[Connection, str], None] | None = None,
        budget: PartialBudget | None = None,
    ) -> None:
        self.handlers = handlers
        self.settings = settings
        self.peer: tuple[str, int] = _NOBODY
        self.local: tuple[str, int] = _NOBODY
        self.peer_text = ""
        self.closed = False
        self.context: dict[str, Any] = {}
        # Requests taken and not answered yet; what a drain waits for.
        self.owed = 0
        self.last_active = 0.0
        # When the frame that is only partly here was begun; since when the peer takes too little. 0 = not so.
        self.partial_since = 0.0
        self.stalled_since = 0.0
        self._on_open = on_open
        self._on_close = on_close
        self._budget = budget or PartialBudget(settings.max_partial_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._out: list[Buffer] = []
        self._out_size = 0
        self._flush_due = False
        self._max_frame = settings.max_frame_bytes
        self._max_header = settings.max_header_bytes
        self._partial = bytearray()
        self._stopped = False
        self._crowded = False
        self._max_owed = settings.max_owed_requests
        self._opaque = 0
        self._calls: dict[int, AnswerSink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.sign: Callable[[Command], None] | None = None
        """What is done to every request of ours before it is encoded: who we are is added."""

    # -- what the owner uses ------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether the peer keeps up: false from the moment its unread answers pass the bound."""
        return not self.closed and self.stalled_since == 0.0

    @property
    def unsent(self) -> int:
        """Bytes that were handed over and the peer has not taken."""
        return self._out_size + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def partial_size(self) -> int:
        """Bytes of a frame whose end has not come yet."""
        return len(self._partial)

    def send(self, command: Command) -> None:
        """Send a one-way request or a ready answer. Silent once closed."""
        if command.flag & RESPONSE_FLAG:
            self._write(encode(command))
        else:
            if self.sign is not None:
                self.sign(command)
            self._write(encode(command, self._next_opaque()))

    def reply(self, request: Command, response: Command) -> None:
        """Answer a request that a handler took. One-way requests get nothing, as the protocol asks."""
        if not request.flag & ONEWAY_FLAG:
            response.flag |= RESPONSE_FLAG
            response.binary = request.binary
            self._write(encode(response, request.opaque))
            self._settle()

    def reply_parts(self, request: Command, response: Command, parts: Sequence[Buffer]) -> None:
        """Answer with a body given in pieces, which are written as they are: a pull's slices of the log."""
        if not request.flag & ONEWAY_FLAG:
            response.flag |= RESPONSE_FLAG
            response.binary = request.binary
            size = sum(len(part) for part in parts)
            self.reply_raw(request, [encode_head(response, size, request.opaque), *parts])

    def reply_raw(self, request: Command, frame: Sequence[Buffer]) -> None:
        """Answer with a frame that is encoded already (``_native.wireout``), in one piece or several."""
        if not request.flag & ONEWAY_FLAG:
            for piece in frame:
                self._write(piece)
            self._settle()

    def reply_plain(self, requests: list[Command]) -> None:
        """Answer requests that went well and have nothing else to be told, all in one piece."""
        frames = plain_answers(requests)
        if frames:
            self._write(frames)
        for request in requests:
            if not request.flag & ONEWAY_FLAG:
                self._settle()

    def reply_frame(self, request: Command, frame: bytes) -> None:
        """As ``reply_raw`` with a frame in one piece."""
        if not request.flag & ONEWAY_FLAG:
            self._write(frame)
            self._settle()

    def forget(self, request: Command) -> None:
        """Say that this request will not be answered (a held pull at shutdown): a drain need not wait."""
        if not request.flag & ONEWAY_FLAG:
            self._settle()

    def call_soon(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send a request now and return the future of its answer, which fails after ``timeout`` seconds."""
        future: asyncio.Future[Command] = self._loop.create_future()
        if self.closed or self._transport is None:
            future.set_exception(self._lost())
            return future
        opaque = self._next_opaque()
        self._calls[opaque] = future
        timer = self._loop.call_later(timeout, self._expire, opaque, command.code, timeout)

        def done(_: asyncio.Future[Command]) -> None:
            timer.cancel()
            self._calls.pop(opaque, None)

        future.add_done_callback(done)
        if self.sign is not None:
            self.sign(command)
        self._write(encode(command, opaque))
        return future

    def expect(self, sink: AnswerSink) -> int:
        """The opaque for a request that the caller encodes and times itself. Raises ConnectionLost.

        ``sink`` gets the answer or the loss of the connection, once; who gives up on it calls ``withdraw``.
        """
        if self.closed or self._transport is None:
            raise self._lost()
        opaque = self._next_opaque()
        self._calls[opaque] = sink
        return opaque

    def withdraw(self, opaque: int) -> None:
        """Expect no answer to this request any more."""
        self._calls.pop(opaque, None)

    def write(self, data: bytes) -> None:
        """Send whole frames that the caller encoded. Silent once closed."""
        self._write(data)

    async def call(self, command: Command, timeout: float | None = None) -> Command:
        """The answer to a request, whatever its code. Raises RemotingTimeout, ConnectionLost."""
        return await self.call_soon(
            command, self.settings.call_timeout_seconds if timeout is None else timeout
        )

    def close(self, reason: str = "") -> None:
        """Close after what was written is sent. Calls under way fail with ConnectionLost at once."""
        self._shut(reason or "closed by us", abort=False)

    def abort(self, reason: str) -> None:
        """Close now; what was written and not sent is dropped."""
        self._shut(reason, abort=True)

    def speak_through(self, transport: asyncio.Transport) -> None:
        """Write to another transport from now on: one that encrypts, on top of the first."""
        self._transport = transport

    def stop_reading(self) -> None:
        """Take no further request: for a drain. Answers to our own calls are not read either."""
        self._stopped = True
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        transport = self._transport = cast(asyncio.Transport, transport)
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        self.peer_text = f"{self.peer[0]}:{self.peer[1]}"
        self.last_active = self._loop.time()
        transport.set_write_buffer_limits(high=self.settings.write_buffer_bytes)
        _tune(transport.get_extra_info("socket"), self.settings)
        if self._on_open is not None and self._on_open(self) is False:
            self.abort("refused")

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        commands, used, wrong = self._complete(data) if self._partial else ([], 0, None)
        if used < len(data) and wrong is None and not self.closed:
            received = memoryview(data)[used:] if used else data
            found, end, wrong = self._take(received)
            commands += found
            # Large bodies are views of ``received``, so what is left is moved out of it.
            if end < len(received):
                self._keep(bytearray(memoryview(received)[end:]))
        due, self._flush_due = self._flush_due, True
        for command in commands:
            if self.closed:
                return
            self._handle(command)
        self._flush_due = due
        if self._out:
            self._flush()
        if wrong is not None:
            self.abort(f"bad frame: {wrong}")
        elif self.owed > self._max_owed and not self._crowded and self._transport is not None:
            self._crowded = True
            self._transport.pause_reading()

    def _take(self, received: Buffer) -> tuple[list[Command], int, str | None]:
        return take_frames(received, self._max_frame, self._max_header, tolerant_header)

    def _complete(self, data: bytes) -> tuple[list[Command], int, str | None]:
        """Add to the unfinished frame: its command if it is whole now, how many bytes it took, what is wrong.

        Nothing else is moved: most of what comes with the end of a large frame is others, whole already.
        """
        view = memoryview(data)
        commands: list[Command] = []
        used, wrong = 0, None
        while self._partial and used < len(data) and wrong is None and not self.closed:
            partial = self._partial
            known = len(partial) >= _LENGTHS
            size = 4 + int.from_bytes(partial[:4], "big") if known else _LENGTHS
            more = view[used : used + size - len(partial)]
            partial += more
            used += len(more)
            self._charge(len(more))
            # A frame of 16 MiB comes in hundreds of pieces. Its lengths were checked when they came.
            if not known or len(partial) == size:
                commands, end, wrong = self._take(partial)
                if end:
                    self._keep(bytearray())
        return commands, used, wrong

    def _keep(self, rest: bytearray) -> None:
        """Remember a frame whose end has not come yet, or that there is none."""
        self._charge(len(rest) - len(self._partial))
        self._partial = rest
        self.partial_since = self.last_active if rest else 0.0

    def _charge(self, size: int) -> None:
        self._budget.used += size
        if size > 0 and self._budget.used > self._budget.limit:
            self.abort("too many unfinished frames in memory")

    def pause_writing(self) -> None:
        self.stalled_since = self._loop.time()
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.stalled_since = 0.0
        self._read_on()

    def _read_on(self) -> None:
        """Read again, unless something else still speaks against it."""
        held_back = self._stopped or self._crowded or self.stalled_since
        if self._transport is not None and not self.closed and not held_back:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        # A transport that is gone takes nothing more, and uvloop's says so with an exception.
        self._out.clear()
        self._out_size = 0
        self._shut(str(exc) if exc else "closed by the peer", abort=False)
        self._budget.used -= len(self._partial)
        self._partial = bytearray()
        self.owed = 0
        for task in list(self._tasks):
            task.cancel()
        if self._on_close is not None:
            self._on_close(self, self._reason)

    # -- requests and answers -----------------------------------------------------------------------------

    def _handle(self, command: Command) -> None:
        if command.flag & RESPONSE_FLAG:
            future = self._calls.get(command.opaque)
            # An answer nobody waits for any more: late, or to a one-way request of a peer like Go's client.
            if future is not None and not future.done():
                future.set_result(command)
            return
        if not command.flag & ONEWAY_FLAG:
            self.owed += 1
        handler = self.handlers.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            self.reply(command, command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
            return
        try:
            result = handler(self, command)
            if type(result) is Command:
                self.reply(command, result)
            elif result is not None:
                task = self._loop.create_task(self._finish(command, result))  # type: ignore[arg-type]
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            # Otherwise the handler answers later through reply().
        except Exception as error:
            self.reply(command, failure(command, error))

    async def _finish(self, command: Command, result: Awaitable[Command | None]) -> None:
        try:
            response = await result
            if response is not None:
                self.reply(command, response)
        except Exception as error:
            self.reply(command, failure(command, error))

    def _settle(self) -> None:
        if self.owed:
            self.owed -= 1
        if self._crowded and self.owed <= self._max_owed // 2:
            self._crowded = False
            self._read_on()

    def _next_opaque(self) -> int:
        self._opaque = self._opaque + 1 if self._opaque < _INT32_HIGH else 0
        return self._opaque

    def _expire(self, opaque: int, code: int, timeout: float) -> None:
        future = self._calls.get(opaque)
        if future is not None and not future.done():
            future.set_exception(
                RemotingTimeout(f"{self.peer_text} did not answer request {code} within {timeout:g} s")
            )

    # -- writing and closing ------------------------------------------------------------------------------

    def _write(self, data: Buffer) -> None:
        """Everything that is written in one turn of the loop leaves in one piece: a call into the kernel
        costs more than all the rest of an answer.
        """
        if self.closed:
            return
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size >= FLUSH_BYTES:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Hand to the transport what this turn wrote."""
        self._flush_due = False
        out = self._out
        if not out or self._transport is None:
            return
        self._out = []
        self._out_size = 0
        self.last_active = self._loop.time()
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)
        if self.stalled_since:
            self._check_unsent()

    def _check_unsent(self) -> None:
        if self.unsent > self.settings.max_write_buffer_bytes:
            self.abort(f"the peer reads nothing: {self.unsent} bytes wait for it")

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"connection to {self.peer_text or 'the peer'} is gone: {self._reason}")

    def _shut(self, reason: str, *, abort: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self._reason = reason
        log.debug("connection %s closed: %s", self.peer_text, reason)
        if self._transport is not None:
            if abort:
                self._out.clear()
                self._out_size = 0
                self._transport.abort()
            else:
                self._flush()
                self._transport.close()
        for future in list(self._calls.values()):
            if not future.done():
                future.set_exception(self._lost())


def failure(command: Command, error: Exception) -> Command:
    """The answer that an exception of a handler becomes. The connection lives on."""
    if isinstance(error, RequestRefused):
        return command.answer(error.code, dict(error.fields), remark=error.remark)
    log.warning("request %d failed", command.code, exc_info=error)
    return command.answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def _address(name: Any) -> tuple[str, int]:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else _NOBODY


def _tune(sock: socket.socket | None, settings: RemotingSettings) -> None:
    """No delay for small answers; a peer that vanished without a word is noticed by the kernel."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.idle_close_seconds * 1000))
