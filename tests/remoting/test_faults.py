"""Peers that are broken, slow, silent or hostile: answered or closed, never a hang or unbounded memory."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config.remoting import RemotingSettings
from penstock.remoting import Command, Connection, RemotingClient, RemotingServer
from penstock.remoting.command import decode, encode
from remoting import loops

Scenario = Callable[["Place"], Awaitable[None]]


def echo(connection: Connection, command: Command) -> Command:
    return command.answer(fields=dict(command.fields), body=bytes(command.body))


class Place:
    """A server and what its callbacks saw."""

    def __init__(self, settings: RemotingSettings) -> None:
        self.closed: list[str] = []
        self.something_closed = asyncio.Event()
        self.kept: list[tuple[Connection, Command]] = []
        self.server = RemotingServer({1: echo, 2: self.keep, 3: self.flood}, settings, on_close=self.on_close)
        self.port = 0

    def keep(self, connection: Connection, command: Command) -> None:
        self.kept.append((connection, command))

    def flood(self, connection: Connection, command: Command) -> Command:
        return command.answer(body=bytes(1 << 20))

    def on_close(self, connection: Connection, reason: str) -> None:
        self.closed.append(reason)
        self.something_closed.set()

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def still_serves(self) -> None:
        client = RemotingClient()
        try:
            answer = await client.call(f"127.0.0.1:{self.port}", Command.request(1, {"a": "b"}), 10)
            assert answer.fields == {"a": "b"}
        finally:
            await client.close()


@asynccontextmanager
async def place(settings: RemotingSettings) -> AsyncIterator[Place]:
    made = Place(settings)
    made.port = await made.server.start("127.0.0.1", 0)
    try:
        yield made
    finally:
        await made.server.stop()


def run(scenario: Scenario, **changes: float) -> None:
    async def main() -> None:
        async with place(RemotingSettings(**changes)) as made:  # type: ignore[arg-type]
            await asyncio.wait_for(scenario(made), 60)

    loops.run(main())


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Everything until the server closes."""
    data = bytearray()
    with suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            data += chunk
    return bytes(data)


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + bytes(64),
    "zero_length": struct.pack(">ii", 0, 0),
    "length_below_header_word": struct.pack(">ii", 3, 0),
    "negative_length": struct.pack(">ii", -1, 0),
    "header_beyond_frame": struct.pack(">ii", 10, 7) + bytes(6),
    "header_of_16_mib": struct.pack(">ii", 16_777_212, 0x00FFFFFF),
    "unknown_serialization": struct.pack(">ii", 6, 0x02000002) + b"{}",
    "no_json": struct.pack(">ii", 6, 2) + b"{x",
    "json_array": struct.pack(">ii", 6, 2) + b"[]",
    "no_code": struct.pack(">ii", 6, 2) + b"{}",
    "not_utf8": struct.pack(">ii", 18, 14) + b'{"code":"\xff\xfe\xff"}',
    "binary_too_short": struct.pack(">ii", 9, 0x01000005) + bytes(5),
    "binary_absurd_field": struct.pack(">ii", 31, 0x0100001B) + bytes(17) + struct.pack(">ihi", 6, 2000, -1),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_that_connection_only(name: str) -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        writer.write(GARBAGE[name])
        assert await ended(reader) == b""
        await made.still_serves()
        writer.close()

    run(scenario)


def test_s25_hostile_length_is_refused_before_anything_is_allocated() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        writer.write(struct.pack(">i", 16_777_213))
        assert await ended(reader) == b""
        assert "a frame of 16777213 bytes" in made.closed[0]
        writer.close()

    run(scenario)


def test_largest_frame_is_served() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        command = Command.request(1)
        command.body = bytes(16_777_216 - len(encode(command)))
        frame = encode(command)
        assert len(frame) == 16_777_216
        writer.write(frame[:-1])
        await writer.drain()
        writer.write(frame[-1:])
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = decode(struct.pack(">i", size) + await reader.readexactly(size))
        assert len(answer.body) == len(command.body)
        writer.close()

    run(scenario, max_write_buffer_bytes=32 << 20)


def test_frames_before_garbage_are_answered() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        writer.write(encode(Command.request(1, {"a": "b"}), 7))
        head = await reader.readexactly(4)
        answer = decode(head + await reader.readexactly(int.from_bytes(head, "big")))
        assert (answer.opaque, answer.fields) == (7, {"a": "b"})
        writer.write(b"\xff" * 8)
        assert await ended(reader) == b""
        writer.close()

    run(scenario)


def test_frame_that_comes_byte_by_byte_is_read() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        frame = encode(Command.request(1, {"a": "b"}, b"body"), 7)
        for at in range(len(frame)):
            writer.write(frame[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        head = await reader.readexactly(4)
        answer = decode(head + await reader.readexactly(int.from_bytes(head, "big")))
        assert bytes(answer.body) == b"body"
        writer.close()

    run(scenario)


def test_slowloris_is_closed_although_it_keeps_sending() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        frame = encode(Command.request(1, {"a": "b" * 60_000}))

        async def drip() -> None:
            with suppress(ConnectionError):
                for at in range(len(frame)):
                    writer.write(frame[at : at + 1])
                    await writer.drain()
                    await asyncio.sleep(0.002)

        dripping = asyncio.create_task(drip())
        await made.something_closed.wait()
        assert made.closed == ["a frame was begun and not finished in time"]
        dripping.cancel()
        assert await ended(reader) == b""
        await made.still_serves()
        writer.close()

    run(scenario, frame_deadline_seconds=0.2)


def test_large_frame_over_a_slow_link_gets_the_time_it_needs() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        frame = encode(Command.request(1, body=bytes(100_000)), 3)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for at in range(0, len(frame), 5000):
            writer.write(frame[at : at + 5000])
            await writer.drain()
            await asyncio.sleep(0.02)
        assert loop.time() - begun > 0.2  # longer than a frame may take that brings nothing
        head = await reader.readexactly(4)
        answer = decode(head + await reader.readexactly(int.from_bytes(head, "big")))
        assert len(answer.body) == 100_000
        writer.close()

    run(scenario, frame_deadline_seconds=0.2, slowest_bytes_per_second=1000)


def test_silent_connection_is_closed_and_a_talking_one_is_not() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        client = RemotingClient()
        address = f"127.0.0.1:{made.port}"
        while not made.closed:
            assert (await client.call(address, Command.request(1))).code == 0
            await asyncio.sleep(0.01)
        assert made.closed == ["idle"]
        assert len(client.connections) == 1
        assert await ended(reader) == b""
        await client.close()
        writer.close()

    run(scenario, idle_close_seconds=0.3)


def test_half_open_connections_cost_nothing_after_a_while() -> None:
    async def scenario(made: Place) -> None:
        peers = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(200)]
        while len(made.closed) < 200:
            await asyncio.sleep(0.01)
        assert not made.server.connections
        for peer in peers:
            peer.close()

    run(scenario, idle_close_seconds=0.2)


def test_client_that_never_reads_is_paused_then_closed_with_bounded_memory() -> None:
    async def scenario(made: Place) -> None:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(peer, ("127.0.0.1", made.port))
        highest = 0
        with suppress(ConnectionError):
            # 400 answers of 1 MiB would be owed if everything were read.
            for number in range(400):
                sending = asyncio.ensure_future(loop.sock_sendall(peer, encode(Command.request(3), number)))
                await asyncio.wait([sending], timeout=0.005)
                highest = max([highest, *(each.unsent for each in made.server.connections)])
                if made.closed:
                    break
                if not sending.done():
                    sending.cancel()
        await made.something_closed.wait()
        assert highest <= 12 << 20
        assert made.closed[0] in ("the peer takes no answers",) or "reads nothing" in made.closed[0]
        peer.close()
        await made.still_serves()

    run(scenario, write_buffer_bytes=1 << 20, write_stall_seconds=0.3, max_write_buffer_bytes=10 << 20)


def test_unread_answers_beyond_the_bound_close_at_once() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        for number in range(50):
            writer.write(encode(Command.request(2), number))
        await writer.drain()
        while len(made.kept) < 50:
            await asyncio.sleep(0.001)
        for connection, command in made.kept:
            connection.reply(command, command.answer(body=bytes(1 << 20)))
        assert made.kept[0][0].closed
        await made.something_closed.wait()
        assert "reads nothing" in made.closed[0]
        await ended(reader)
        writer.close()

    run(scenario, write_buffer_bytes=1 << 20, max_write_buffer_bytes=8 << 20)


def test_unfinished_frames_of_all_connections_share_a_budget() -> None:
    async def scenario(made: Place) -> None:
        begun = struct.pack(">ii", 1 << 20, 100) + bytes(300_000)
        peers = [await made.raw() for _ in range(8)]
        for _, writer in peers:
            writer.write(begun)
        await made.something_closed.wait()
        assert made.closed[0] == "too many unfinished frames in memory"
        assert len(made.server.connections) >= 2
        for _, writer in peers:
            writer.close()
        while made.server.connections:
            await asyncio.sleep(0.001)
        # What was given back can be used again.
        await made.still_serves()
        assert made.server.partial_bytes == 0

    run(scenario, max_partial_bytes=1_000_000)


def test_connections_beyond_the_limit_are_refused() -> None:
    async def scenario(made: Place) -> None:
        first = [await made.raw() for _ in range(3)]
        reader, writer = await made.raw()
        assert await ended(reader) == b""
        assert len(made.server.connections) == 3
        writer.close()
        first[0][1].close()
        await made.something_closed.wait()
        await made.still_serves()
        for _, each in first:
            each.close()

    run(scenario, max_connections=3)


def test_drain_answers_what_is_owed_and_takes_nothing_new() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        writer.write(encode(Command.request(2), 1))
        await writer.drain()
        while not made.kept:
            await asyncio.sleep(0.001)
        draining = asyncio.create_task(made.server.drain(30))
        await asyncio.sleep(0)
        writer.write(encode(Command.request(1), 2))
        await asyncio.sleep(0.02)
        assert not draining.done()
        connection, command = made.kept[0]
        connection.reply(command, command.answer(body=bytes(3 << 20)))
        await draining_with_reader(draining, reader)
        with pytest.raises(OSError):
            await made.raw()
        writer.close()

    async def draining_with_reader(draining: asyncio.Task[None], reader: asyncio.StreamReader) -> None:
        head = await reader.readexactly(4)
        answer = decode(head + await reader.readexactly(int.from_bytes(head, "big")))
        assert (answer.opaque, len(answer.body)) == (1, 3 << 20)
        await draining

    run(scenario)


def test_drain_does_not_wait_for_a_request_that_was_forgotten() -> None:
    async def scenario(made: Place) -> None:
        _, writer = await made.raw()
        writer.write(encode(Command.request(2), 1))
        while not made.kept:
            await asyncio.sleep(0.001)
        connection, command = made.kept[0]
        connection.forget(command)
        await made.server.drain(3600)
        with pytest.raises(OSError):  # it is over: nobody new is let in
            await made.raw()
        writer.close()

    run(scenario)


def test_peer_that_resets_while_a_handler_works_harms_nobody() -> None:
    async def scenario(made: Place) -> None:
        _, writer = await made.raw()
        writer.write(encode(Command.request(2), 1))
        while not made.kept:
            await asyncio.sleep(0.001)
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await made.something_closed.wait()
        connection, command = made.kept[0]
        connection.reply(command, command.answer())
        connection.send(Command.request(40, oneway=True))
        assert connection.closed and not connection.writable
        await made.still_serves()

    run(scenario)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=6))
def test_server_survives_any_bytes(chunks: list[bytes]) -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        with suppress(ConnectionError):
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()
        await ended(reader)
        writer.close()
        await made.still_serves()
        assert made.server.partial_bytes == 0

    run(scenario)


def test_requests_that_pile_up_stop_the_reading_until_they_are_answered() -> None:
    async def scenario(made: Place) -> None:
        reader, writer = await made.raw()
        total = 40_000
        frame = encode(Command.request(2, {"padding": "x" * 200}))
        writing = asyncio.ensure_future(write_all(writer, frame, total))
        while not made.kept or not made.server.connections:
            await asyncio.sleep(0.001)
        (connection,) = made.server.connections
        seen = -1
        while seen != len(made.kept):  # until nothing more is read
            seen = len(made.kept)
            await asyncio.sleep(0.05)
        # One read may bring more than the limit; it does not bring everything.
        assert 100 < connection.owed < total // 2
        answered = 0
        while answered < total:
            for kept, command in made.kept[answered:]:
                kept.reply(command, command.answer())
                answered += 1
            await asyncio.wait_for(reader.read(1 << 20), 30)
        await writing
        assert connection.owed == 0
        writer.close()

    async def write_all(writer: asyncio.StreamWriter, frame: bytes, total: int) -> None:
        for _ in range(total // 100):
            writer.write(frame * 100)
            await writer.drain()

    run(scenario, max_owed_requests=100, max_write_buffer_bytes=64 << 20)


def test_answer_that_meets_a_lost_connection_does_not_hide_the_loss() -> None:
    class Gone(asyncio.Transport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return default

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

        def write(self, data: object) -> None:
            raise RuntimeError("the handler is closed")

        def close(self) -> None: ...

        def get_write_buffer_size(self) -> int:
            return 0

    async def main() -> None:
        reasons: list[str] = []
        connection = Connection(
            {1: echo}, RemotingSettings(), on_close=lambda connection, reason: reasons.append(reason)
        )
        connection.connection_made(Gone())
        connection.send(Command.request(40, oneway=True))
        connection.connection_lost(None)
        await asyncio.sleep(0)
        assert reasons == ["closed by the peer"]
        assert connection.unsent == 0

    loops.run(main())


def test_first_bytes_that_drip_in_do_not_start_the_clock_again() -> None:
    async def scenario(made: Place) -> None:
        _, writer = await made.raw()
        frame = encode(Command.request(1))
        writer.write(frame[:1])
        while not any(each.partial_size for each in made.server.connections):
            await asyncio.sleep(0.001)
        (connection,) = made.server.connections
        begun = connection.partial_since
        for size in range(2, 8):
            writer.write(frame[size - 1 : size])
            while connection.partial_size < size:
                await asyncio.sleep(0.001)
        assert connection.partial_since == begun > 0
        writer.write(frame[7:])
        while connection.partial_size:
            await asyncio.sleep(0.001)
        assert connection.partial_since == 0
        writer.close()

    run(scenario)
