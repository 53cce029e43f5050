"""A broker that is killed and started again: what it was told to keep is there."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.talking import Client, properties_text, records

SETTINGS = """
mappedFileSizeCommitLog=16777216
maxHashSlotNum=1000
maxIndexNum=4000
flushConsumerOffsetInterval=10
flushIntervalConsumeQueue=10
"""


@contextmanager
def broker_process(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A broker of its own process; killed at the end."""
    (folder / "broker.conf").write_text(SETTINGS)
    command = [sys.executable, "-m", "penstock", "up", "--json", "--store", str(folder / "store")]
    ports = ["--port", "0", "--namesrv-port", "0", "--config", str(folder / "broker.conf")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"], process
        finally:
            process.kill()


def test_s30_a_killed_broker_keeps_acknowledged_messages_and_places_of_groups(
    tmp_path: Path,
) -> None:
    place = {"consumerGroup": "G", "topic": "T", "queueId": "3"}

    async def before(address: str) -> list[bytes]:
        client = Client(address)
        bodies = [str(number).encode() for number in range(40)]
        for body in bodies:
            assert (await client.send("T", body, queue=3)).code == 0
        await client.heartbeat("G", "T")
        assert (await client.call(15, {**place, "commitOffset": "7"})).code == 0
        text = properties_text(TRAN_MSG="true", PGROUP="P", UNIQ_KEY="half")
        assert (await client.send("T", b"half", properties=text, f="4")).code == 0
        saved = tmp_path / "store" / "config" / "consumerOffset.json"
        async with asyncio.timeout(20):
            while not saved.exists() or "3:7" not in saved.read_text().replace(" ", ""):
                await asyncio.sleep(0.005)
        await client.close()
        return bodies

    async def after(address: str, bodies: list[bytes]) -> None:
        client = Client(address)
        assert (await client.call(14, place)).fields == {"offset": "7"}
        found: list[bytes] = []
        while len(found) < len(bodies):
            answer = await client.pull("T", len(found), queue=3)
            assert answer.code == 0
            found += [record.body for record in records(answer)]
        assert found == bodies
        route = json.loads(bytes((await client.call(105, {"topic": "T"})).body))
        assert route["queueDatas"][0]["writeQueueNums"] == 4
        assert (await client.pull("T", 0, queue=0)).code == 19  # the half message is not to be seen
        answer = await client.send("T", b"next", queue=3)
        assert answer.fields["queueOffset"] == str(len(bodies))
        await client.close()

    with broker_process(tmp_path) as (address, process):
        bodies = asyncio.run(before(address))
        process.kill()
        process.wait()
    with broker_process(tmp_path) as (address, _):
        asyncio.run(after(address, bodies))


def test_s21_a_delayed_message_is_delivered_once_over_a_stop(tmp_path: Path) -> None:
    async def send(address: str) -> None:
        client = Client(address)
        await client.send("T", b"plain")
        await client.send("T", b"late", properties=properties_text(DELAY="1"))
        await client.close()

    async def read(address: str) -> list[bytes]:
        client = Client(address)
        await client.pull("T", 1, flags=6, hold_ms=15_000)
        answer = await client.pull("T", 0)
        await client.close()
        return [record.body for record in records(answer)]

    with broker_process(tmp_path) as (address, process):
        asyncio.run(send(address))
        process.terminate()
        assert process.wait(30) == 0
    with broker_process(tmp_path) as (address, process):
        assert asyncio.run(read(address)) == [b"plain", b"late"]
        process.terminate()
        assert process.wait(30) == 0
    with broker_process(tmp_path) as (address, process):
        assert asyncio.run(read_all(address)) == [b"plain", b"late"]


async def read_all(address: str) -> list[bytes]:
    client = Client(address)
    answer = await client.pull("T", 0)
    await client.close()
    return [record.body for record in records(answer)]
