"""Requests that make no sense get an answer, and the broker goes on."""

import asyncio
import random
from pathlib import Path

from broker.talking import Client, play, pull_fields, send_fields
from penstock.broker import Broker
from penstock.remoting import Command

WORDS = (
    "",
    "0",
    "-1",
    "9" * 30,
    "T",
    "../../x",
    "%RETRY%G",
    "\x00",
    "true",
    "[]",
    "{}",
    "日本",
    "1e9",
    "x" * 300,
)
NAMES = (
    *("topic", "consumerGroup", "queueId", "queueOffset", "offset", "group", "maxMsgNums", "sysFlag"),
    *("commitOffset", "timestamp", "key", "clientID", "producerGroup", "delayLevel", "a", "b", "e", "i"),
)
BODIES = (b"", b"{}", b"[]", b"null", b'{"clientID":"x"}', b"\xff" * 50, b'{"mqSet":[{}]}', b'{"a":' * 2000)
ANSWERED_LATER = {11, 361}  # may be held
SILENT = {37}  # no answer to a verdict that is none


def test_every_request_survives_nonsense(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        choose = random.Random(5)
        for code in sorted(broker.handlers):
            for _ in range(6):
                fields = {name: choose.choice(WORDS) for name in NAMES if choose.random() < 0.6}
                if code in ANSWERED_LATER:
                    fields["suspendTimeoutMillis"] = "0"
                if code in SILENT:
                    fields["commitOrRollback"] = "8"
                answer = await client.call(code, fields, choose.choice(BODIES))
                assert answer.is_response
        folders = {path.name for path in (tmp_path / "store" / "consumequeue").iterdir()}
        assert all("/" not in name and "." not in name for name in folders)
        assert not (tmp_path / "x").exists()
        assert (await client.send("T", b"still")).code == 0

    play(tmp_path, scene)


def test_unknown_codes_are_told_so(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        answer = await client.call(9999)
        assert (answer.code, answer.remark) == (3, " request type 9999 not supported")

    play(tmp_path, scene)


def test_more_pulls_than_may_wait_are_answered_at_once(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        held = [asyncio.create_task(client.pull("T", 1, flags=6)) for _ in range(3)]
        done, waiting = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result().code for task in done} == {19}
        assert len(waiting) == len(broker.holding) == 2
        await client.send("T")
        await asyncio.gather(*waiting)

    play(tmp_path, scene, max_held_pulls=2)


def test_requests_of_a_client_that_leaves_at_once_harm_nobody(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        for number in range(20):
            other = Client(broker.address)
            await other.oneway(310, send_fields(f"New{number}"), b"x")
            await other.remoting.oneway(broker.address, Command.request(11, pull_fields("T", 1, flags=6)))
            await other.close()
        assert (await client.send("T")).code == 0

    play(tmp_path, scene)
