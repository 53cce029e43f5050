"""TLS on the port that also speaks without it: who is let in, who is closed, and that nobody hangs."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.config.remoting import RemotingSettings
from penstock.config.tls import ClientTlsSettings, ServerTlsSettings
from penstock.errors import ConfigError, ConnectionLost
from penstock.remoting import Command, Connection, RemotingClient, RemotingServer
from penstock.remoting.command import decode, encode
from penstock.remoting.loop import new_event_loop
from penstock.remoting.tlscontext import ServerTls, client_context
from security.certificates import Authority, Pair

RECORDED = Path(__file__).parent.parent / "data" / "wire" / "tls-first-bytes.jsonl.gz"
Scene = Callable[["Port"], Awaitable[None]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_pair(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Iterator[Callable[[], asyncio.AbstractEventLoop]]:
    yield new_event_loop if request.param == "uvloop" else asyncio.new_event_loop


def echo(connection: Connection, command: Command) -> Command:
    return command.answer(fields=dict(command.fields), body=bytes(command.body))


class Port:
    """A server on loopback and ways to talk to it."""

    def __init__(self, server: RemotingServer, port: int) -> None:
        self.server, self.port = server, port
        self.address = f"127.0.0.1:{port}"

    async def ask(self, tls: ClientTlsSettings | None, body: bytes = b"hello", timeout: float = 20) -> bytes:
        context = None if tls is None else client_context(tls)
        client = RemotingClient(tls=context)
        try:
            answer = await client.call(self.address, Command.request(1, {"a": "b"}, body), timeout)
            assert answer.fields == {"a": "b"}
            return bytes(answer.body)
        finally:
            await client.close()

    async def raw(self, first: bytes) -> bytes:
        """Everything the server says to these bytes, until it closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(first)
        said = b""
        with suppress(ConnectionError):
            said = await reader.read()
        writer.close()
        return said


@asynccontextmanager
async def listening(tls: ServerTlsSettings, **limits: Any) -> AsyncIterator[Port]:
    server = RemotingServer({1: echo}, RemotingSettings(**limits), tls=ServerTls(tls))
    port = await server.start("127.0.0.1", 0)
    try:
        yield Port(server, port)
    finally:
        await server.stop()


def play(
    scene: Scene,
    tls: ServerTlsSettings,
    loops: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    **limits: Any,
) -> None:
    async def run() -> None:
        async with listening(tls, **limits) as port, asyncio.timeout(60):
            await scene(port)

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(run())


def served(pair: Pair, mode: str = "permissive", **more: Any) -> ServerTlsSettings:
    return ServerTlsSettings(mode=mode, cert_path=pair.cert, key_path=pair.key, **more)


def client_hello() -> bytes:
    """The first flight of a real client."""
    outgoing = ssl.MemoryBIO()
    context = client_context(ClientTlsSettings(verify=False))
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def test_permissive_serves_both_on_one_port(authority: Authority, server_pair: Pair, loops: Any) -> None:
    async def scene(port: Port) -> None:
        trusting = ClientTlsSettings(trust_path=authority.trust)
        assert await port.ask(trusting) == b"hello"
        assert await port.ask(None) == b"hello"
        # Larger than a record, larger than the buffers: in and out in many pieces.
        large = bytes(range(256)) * 20_000
        assert await port.ask(trusting, large) == large

    play(scene, served(server_pair), loops)


def test_enforcing_closes_plain_connections_without_an_answer(
    authority: Authority, server_pair: Pair, loops: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(port: Port) -> None:
        assert await port.raw(encode(Command.request(1))) == b""
        assert await port.ask(ClientTlsSettings(trust_path=authority.trust)) == b"hello"

    with caplog.at_level(logging.WARNING, "penstock.remoting"):
        play(scene, served(server_pair, "enforcing"), loops)
    assert "without TLS, which is enforced" in caplog.text


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
def test_tls_that_is_not_there_is_closed_and_said(
    mode: str, loops: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(port: Port) -> None:
        assert await port.raw(client_hello()) == b""
        with pytest.raises(ConnectionLost):
            await port.ask(ClientTlsSettings(verify=False))
        assert await port.ask(None) == b"hello"

    with caplog.at_level(logging.WARNING, "penstock.remoting"):
        play(scene, ServerTlsSettings(mode=mode), loops)
    assert ("TLS is disabled here" if mode == "disabled" else "no certificate") in caplog.text


def test_disabled_closes_tls_although_there_is_a_certificate(server_pair: Pair) -> None:
    async def scene(port: Port) -> None:
        assert await port.raw(client_hello()) == b""
        assert await port.ask(None) == b"hello"

    play(scene, served(server_pair, "disabled"))


def test_half_a_handshake_and_then_silence_is_closed(
    server_pair: Pair, loops: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(port: Port) -> None:
        hello = client_hello()
        # Nothing more comes from us, and the server ends it: read() returns.
        await asyncio.gather(port.raw(hello[: len(hello) // 2]), port.raw(hello), port.raw(hello[:1]))
        assert not port.server.connections

    with caplog.at_level(logging.WARNING, "penstock.remoting"):
        play(scene, served(server_pair), loops, frame_deadline_seconds=0.05)
    assert "the TLS handshake was not finished in time" in caplog.text


@pytest.mark.parametrize(
    "garbage",
    [b"\x16" * 100, b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\xff\xff" + bytes(70_000)],
    ids=["noise", "no_hello", "too_long"],
)
def test_garbage_instead_of_a_handshake_is_closed(garbage: bytes, server_pair: Pair, loops: Any) -> None:
    async def scene(port: Port) -> None:
        assert len(await port.raw(garbage)) < 100  # an alert at most
        assert await port.ask(None) == b"hello"

    play(scene, served(server_pair), loops, frame_deadline_seconds=0.5)


def test_damaged_record_after_the_handshake_closes_the_connection(server_pair: Pair) -> None:
    async def scene(port: Port) -> None:
        context = client_context(ClientTlsSettings(verify=False))
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=context)
        writer.write(encode(Command.request(1)))
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert decode(size.to_bytes(4, "big") + await reader.readexactly(size)).code == 0
        raw = writer.transport.get_extra_info("socket")
        raw = raw.dup()
        raw.setblocking(True)
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))  # behind the encryption's back
        raw.close()
        with suppress(ConnectionError, ssl.SSLError):
            assert await reader.read() == b""
        writer.close()

    play(scene, served(server_pair))


# -- certificates ------------------------------------------------------------------------------------------


def test_client_refuses_a_server_it_has_no_reason_to_trust(
    authority: Authority, server_pair: Pair, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")

    async def scene(port: Port) -> None:
        for tls in (ClientTlsSettings(), ClientTlsSettings(trust_path=stranger.trust)):
            with pytest.raises(ConnectionLost, match="certificate"):
                await port.ask(tls)
        assert await port.ask(ClientTlsSettings(verify=False)) == b"hello"

    play(scene, served(server_pair))


def test_expired_certificate_is_refused(authority: Authority) -> None:
    async def scene(port: Port) -> None:
        with pytest.raises(ConnectionLost, match="expired"):
            await port.ask(ClientTlsSettings(trust_path=authority.trust))

    play(scene, served(authority.sign("old", expired=True)))


def test_client_certificates_are_asked_for_and_checked(
    authority: Authority, server_pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = authority.sign("client")
    theirs = Authority(tmp_path, "stranger").sign("client")

    def shows(pair: Pair | None) -> ClientTlsSettings:
        cert, key = pair or ("", "")
        return ClientTlsSettings(trust_path=authority.trust, cert_path=cert, key_path=key)

    async def scene(port: Port) -> None:
        assert await port.ask(shows(mine)) == b"hello"
        for refused in (None, theirs):
            with pytest.raises(ConnectionLost):
                await port.ask(shows(refused))

    with caplog.at_level(logging.WARNING, "penstock.remoting"):
        play(scene, served(server_pair, client_auth="require", trust_path=authority.trust))
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.text


def test_certificate_that_changes_is_taken_and_a_broken_one_is_not(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = authority.sign("first")
    pair = Pair(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))

    def install(cert: str, key: str) -> None:
        Path(pair.cert).write_text(cert)
        Path(pair.key).write_text(key)

    install(Path(first.cert).read_text(), Path(first.key).read_text())
    tls = ServerTls(served(pair))
    assert not tls.reload()
    before = tls.context
    install("no certificate", "no key")
    assert not tls.reload()
    assert tls.context is before
    assert "the certificate in use stays" in caplog.text
    second = authority.sign("second")
    install(Path(second.cert).read_text(), Path(second.key).read_text())
    assert tls.reload()
    assert tls.context is not before


def test_broken_files_are_refused_with_their_name(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.sign("good"), authority.sign("other")
    locked = authority.sign("locked", password="open sesame")
    noise = tmp_path / "noise.pem"
    noise.write_bytes(b"\0\xffnoise")
    for cert, key in [
        (str(tmp_path / "missing.pem"), good.key),
        (str(noise), good.key),
        (good.cert, other.key),
        (good.cert, str(noise)),
        locked,
    ]:
        with pytest.raises(ConfigError) as found:
            ServerTls(served(Pair(cert, key)))
        assert cert in str(found.value)
    assert ServerTls(served(locked, key_password="open sesame")).context is not None
    with pytest.raises(ConfigError, match="trusted"):
        ServerTls(served(good, client_auth="require", trust_path=str(noise)))


def test_settings_that_would_leave_a_door_open_are_refused() -> None:
    for wrong in (
        {"mode": "enforcing"},
        {"mode": "on"},
        {"cert_path": "a.pem"},
        {"client_auth": "require"},
        {"client_auth": "maybe", "trust_path": "a.pem"},
    ):
        with pytest.raises(ConfigError):
            ServerTlsSettings(**wrong)
    assert "sesame" not in repr(ServerTlsSettings(key_password="sesame"))


# -- as recorded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["permissive", "enforcing", "disabled"])
def test_first_bytes_are_met_as_the_real_broker_meets_them(mode: str, server_pair: Pair) -> None:
    """For each mode: which of the two kinds of connection the recorded broker answered."""
    with gzip.open(RECORDED, "rt") as lines:
        rows = [json.loads(line) for line in lines][1:]
    mine = [row for row in rows if row["mode"] == mode]
    brokers = {row["conn"] for row in mine if row["to"] == "broker"}
    expected = {}
    for number in brokers:
        spoken = [row for row in mine if row["conn"] == number and "first_bytes" in row]
        kind = spoken[0]["first_bytes"][:2]
        expected[kind] = any(row["to"] == "client" for row in spoken)
    assert expected.keys() == {"16", "00"}

    async def scene(port: Port) -> None:
        for kind, answered in expected.items():
            tls = ClientTlsSettings(verify=False) if kind == "16" else None
            if answered:
                assert await port.ask(tls) == b"hello"
            else:
                with pytest.raises(ConnectionLost):
                    await port.ask(tls)

    play(scene, served(server_pair, mode))


def test_connections_of_one_address_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(port: Port) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        for _, each in held:
            each.close()
            await each.wait_closed()
        while port.server.connections:
            await asyncio.sleep(0)
        assert await port.ask(None) == b"hello"

    with caplog.at_level(logging.WARNING, "penstock.remoting"):
        play(scene, ServerTlsSettings(), max_connections_per_address=2)
    assert "2 connections from there are open" in caplog.text
