"""Both sides of a connection talk: calls, answers, one-way requests, requests coming back."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.errors import ConnectionLost, ListenFailed, RemotingTimeout, RequestRefused
from penstock.remoting import Command, Connection, RemotingClient, RemotingServer
from remoting import loops


def echo(connection: Connection, command: Command) -> Command:
    return command.answer(fields=dict(command.fields), body=bytes(command.body), remark="echo")


def talk(
    handlers: dict[int, object],
    scenario: Callable[[RemotingServer, RemotingClient, str], Awaitable[None]],
    client_handlers: dict[int, object] | None = None,
) -> None:
    """Run the scenario against a server with these handlers."""

    async def main() -> None:
        server = RemotingServer(handlers)  # type: ignore[arg-type]
        client = RemotingClient(client_handlers)  # type: ignore[arg-type]
        port = await server.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(scenario(server, client, f"127.0.0.1:{port}"), 30)
        finally:
            await client.close()
            await server.stop()

    loops.run(main())


def test_call_gets_its_own_answer_among_many() -> None:
    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        calls = [
            client.call(address, Command.request(1, {"n": str(number)}, b"x" * number))
            for number in range(200)
        ]
        for number, answer in enumerate(await asyncio.gather(*calls)):
            assert (answer.code, answer.fields, bytes(answer.body)) == (0, {"n": str(number)}, b"x" * number)
        assert len(server.connections) == 1

    talk({1: echo}, scenario)


def test_unknown_code_is_answered_and_the_connection_lives() -> None:
    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        answer = await client.call(address, Command.request(9999))
        assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
        assert (await client.call(address, Command.request(1))).code == 0

    talk({1: echo}, scenario)


def test_exception_of_a_handler_is_an_answer() -> None:
    def broken(connection: Connection, command: Command) -> Command:
        raise ValueError("no such thing")

    async def slow_and_broken(connection: Connection, command: Command) -> Command:
        await asyncio.sleep(0)
        raise RequestRefused(17, "topic[T] not exist", {"a": "b"})

    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        answer = await client.call(address, Command.request(1))
        assert (answer.code, answer.remark) == (1, "ValueError: no such thing")
        answer = await client.call(address, Command.request(2))
        assert (answer.code, answer.remark, answer.fields) == (17, "topic[T] not exist", {"a": "b"})

    talk({1: broken, 2: slow_and_broken}, scenario)


def test_server_calls_the_client_back_on_the_same_connection() -> None:
    async def ask_back(connection: Connection, command: Command) -> Command:
        back = await connection.call(Command.request(307, {"who": "you"}), 5)
        return command.answer(fields=back.fields, body=bytes(back.body))

    def mine(connection: Connection, command: Command) -> Command:
        return command.answer(fields={**command.fields, "me": "client"}, body=b"info")

    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        answer = await client.call(address, Command.request(1))
        assert answer.fields == {"who": "you", "me": "client"}
        assert bytes(answer.body) == b"info"

    talk({1: ask_back}, scenario, {307: mine})


def test_oneway_request_is_never_answered() -> None:
    seen: list[str] = []

    def note(connection: Connection, command: Command) -> Command:
        seen.append(command.fields["n"])
        return command.answer(remark="nobody may see this")

    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        await client.oneway(address, Command.request(1, {"n": "a"}, oneway=True))
        answer = await client.call(address, Command.request(2))
        assert answer.remark == "echo" and seen == ["a"]

    talk({1: note, 2: echo}, scenario)


def test_call_without_an_answer_times_out_and_the_late_answer_is_dropped() -> None:
    kept: list[tuple[Connection, Command]] = []

    def keep(connection: Connection, command: Command) -> None:
        kept.append((connection, command))

    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        with pytest.raises(RemotingTimeout):
            await client.call(address, Command.request(1), 0.05)
        connection, command = kept[0]
        connection.reply(command, command.answer(remark="late"))
        assert (await client.call(address, Command.request(2))).remark == "echo"

    talk({1: keep, 2: echo}, scenario)


def test_lost_connection_fails_the_calls_under_way_and_the_next_call_reconnects() -> None:
    def hang_up(connection: Connection, command: Command) -> None:
        connection.close("enough")

    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        with pytest.raises(ConnectionLost):
            await client.call(address, Command.request(1))
        assert (await client.call(address, Command.request(2))).code == 0

    talk({1: hang_up, 2: echo}, scenario)


def test_refused_address_says_so() -> None:
    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        await server.stop()
        with pytest.raises(ConnectionLost, match="can't connect"):
            await client.call(address, Command.request(1))

    talk({1: echo}, scenario)


def test_answer_in_parts_arrives_whole() -> None:
    def parts(connection: Connection, command: Command) -> None:
        views = [memoryview(b"abc")[1:], b"def", bytearray(b"ghi")]
        connection.reply_parts(command, command.answer(fields={"k": "v"}), views)

    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        answer = await client.call(address, Command.request(1))
        assert bytes(answer.body) == b"bcdefghi" and answer.fields == {"k": "v"}

    talk({1: parts}, scenario)


def test_port_that_is_taken_is_refused_with_a_sentence() -> None:
    async def scenario(server: RemotingServer, client: RemotingClient, address: str) -> None:
        other = RemotingServer({})
        with pytest.raises(ListenFailed, match=r"can't listen on 127\.0\.0\.1:\d+: .*in use"):
            await other.start("127.0.0.1", int(address.rpartition(":")[2]))
        await other.stop()

    talk({}, scenario)
