"""What a broker does when the disk fails, fills up or the process is told to go."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.talking import SMALL, Client, config, play, records, send_fields, until
from penstock.broker import Broker
from penstock.errors import FlushFailed, ListenFailed, RemotingError, StoreLocked
from penstock.files.disk import DiskStorage
from penstock.remoting import Command
from penstock.remoting.command import decode
from penstock.store.opening import open_writable


def bodies(path: Path) -> list[bytes]:
    """What the store holds of topic T."""
    with open_writable(path / "store", config=SMALL) as store:
        found = [queue for queue in store.queues() if queue[0] == "T"]
        return [message.body for topic, queue in found for message in store.follow(topic, queue, wait=False)]


def test_a_failed_sync_is_never_acknowledged_and_final(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert (await client.send("T", b"safe")).code == 0
        for mapping in broker.store.log_files(0):
            mapping.inject(sync_error=errno.EIO, sync_times=1)
        lost = await client.send("T", b"unsure")
        assert lost.code == 14
        assert lost.remark is not None and "a sync failed" in lost.remark
        assert lost.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert (await client.send("T", b"later")).code == 14
        assert [record.body for record in records(await client.pull("T"))] == [b"safe"]

    with pytest.raises(FlushFailed):  # whoever runs the broker is told, too
        play(tmp_path, scene)


def test_a_full_disk_refuses_sends_serves_pulls_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = 0.5
    monkeypatch.setattr(DiskStorage, "disk_usage", lambda self, path: used)

    async def scene(broker: Broker, client: Client) -> None:
        nonlocal used
        assert (await client.send("T", b"before")).code == 0
        used = 0.99
        broker.store.upkeep()
        refused = await client.send("T", b"during")
        assert refused.code == 14
        assert refused.remark is not None and refused.remark.startswith("service not available now. It may")
        assert "the broker's disk is full [the disk is 99% full]" in refused.remark
        assert [record.body for record in records(await client.pull("T"))] == [b"before"]
        used = 0.5
        broker.store.upkeep()
        assert (await client.send("T", b"after")).code == 0
        assert [record.body for record in records(await client.pull("T"))] == [b"before", b"after"]

    play(tmp_path, scene, store={"flush_interval_consume_queue_ms": 86_400_000})


def test_sends_resume_when_a_log_file_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False
    real = DiskStorage.open_mapping

    def open_mapping(self: DiskStorage, path: Any, *rest: Any, **more: Any) -> Any:
        if full and "commitlog" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real(self, path, *rest, **more)

    monkeypatch.setattr(DiskStorage, "open_mapping", open_mapping)

    async def scene(broker: Broker, client: Client) -> None:
        nonlocal full
        assert (await client.send("T", b"x" * 100_000)).code == 0
        full = True
        codes = [(await client.send("T", b"x" * 100_000)).code for _ in range(30)]
        assert codes[-1] == 14
        assert set(codes) <= {0, 14}
        assert records(await client.pull("T"))
        full = False
        while (await client.send("T", b"again")).code != 0:
            pass

    play(tmp_path, scene, store={"mapped_file_size_commit_log": 1 << 20})


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_stop_under_load_answers_what_it_took_and_keeps_what_it_acknowledged(
    tmp_path: Path, flush: str
) -> None:
    async def run() -> list[bytes]:
        acknowledged: list[bytes] = []
        broker = Broker(config(tmp_path, flush=flush))
        await broker.start()
        clients = [Client(broker.address) for _ in range(4)]
        await clients[0].send("T", b"first")
        stopping = asyncio.Event()

        async def sender(number: int, client: Client) -> None:
            count = 0
            while True:
                body = f"{number}-{count}".encode()
                count += 1
                try:
                    answer = await client.remoting.call(
                        broker.address, Command.request(310, send_fields("T", queue=number % 4), body), 5.0
                    )
                except RemotingError:
                    return
                assert answer.code == 0
                acknowledged.append(body)
                if len(acknowledged) > 200:
                    stopping.set()

        held = asyncio.create_task(clients[0].pull("T", 1 << 40, flags=6))
        tasks = [asyncio.create_task(sender(n, clients[n % 4])) for n in range(32)]
        await stopping.wait()
        await broker.stop()
        await asyncio.gather(*tasks)
        await asyncio.gather(held, return_exceptions=True)
        for client in clients:
            await client.close()
        return acknowledged

    acknowledged = asyncio.run(run())
    stored = bodies(tmp_path)
    assert len(set(stored)) == len(stored)
    assert set(acknowledged) <= set(stored)


def test_a_held_pull_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async def run() -> Command:
        broker = Broker(config(tmp_path))
        await broker.start()
        client = Client(broker.address)
        await client.send("T")
        held = asyncio.create_task(client.pull("T", 1, flags=6))
        await until(lambda: len(broker.holding) == 1)
        await broker.stop()
        answer = await held
        await client.close()
        return answer

    assert asyncio.run(run()).code == 19


def test_sigterm_leaves_a_clean_store_with_every_acknowledged_message(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "up", "--store", str(tmp_path / "store"), "--json"]
    ports = ["--port", "0", "--namesrv-port", "0"]
    settings = tmp_path / "broker.conf"
    settings.write_text("mappedFileSizeCommitLog=16777216\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [*command, *ports, "--config", str(settings)], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]

        async def load() -> list[bytes]:
            client = Client(address)
            done: list[bytes] = []
            try:
                for number in range(1_000_000):
                    body = str(number).encode()
                    if (await client.send("T", body)).code == 0:
                        done.append(body)
                    if number == 50:
                        process.send_signal(signal.SIGTERM)
            except RemotingError:
                pass
            await client.close()
            return done

        acknowledged = asyncio.run(load())
        assert process.wait(30) == 0
    assert len(acknowledged) > 50
    assert not (tmp_path / "store" / "abort").exists()
    stored = bodies(tmp_path)
    assert set(acknowledged) <= set(stored)
    assert len(set(stored)) == len(stored)


def test_one_way_requests_do_not_pay_off_what_is_owed_to_others(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        held = asyncio.create_task(client.pull("T", 1, flags=6))
        await until(lambda: len(broker.holding) == 1)
        await client.oneway(310, send_fields("T", queue=1), b"quiet")
        await client.oneway(37, {"commitLogOffset": "0", "tranStateTableOffset": "0", "producerGroup": "P"})
        assert (await client.send("T", queue=2)).code == 0
        (connection,) = broker.connections
        assert connection.owed == 1
        await client.send("T")
        await held
        assert connection.owed == 0

    play(tmp_path, scene)


def test_a_store_that_somebody_else_has_is_refused_and_nothing_is_left_behind(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        before = {thread.name for thread in threading.enumerate()}
        second = Broker(broker.config.replace(listen_port=0, namesrv_port=0))
        with pytest.raises(StoreLocked):
            await second.start()
        assert {thread.name for thread in threading.enumerate()} <= before
        third = Broker(config(tmp_path / "other").replace(listen_port=int(broker.address.rpartition(":")[2])))
        with pytest.raises(ListenFailed):
            await third.start()
        assert (await client.send("T")).code == 0

    play(tmp_path, scene)


class Recorder:
    """In place of a connection: what it is told to answer."""

    peer = ("127.0.0.1", 5)
    peer_text = "127.0.0.1:5"

    def __init__(self) -> None:
        self.context: dict[str, Any] = {}
        self.answers: list[Command] = []

    def reply(self, request: Command, answer: Command) -> None:
        self.answers.append(answer)

    def reply_raw(self, request: Command, frame: Any) -> None:
        self.answers.append(decode(b"".join(frame)))


@pytest.mark.parametrize("properties", ["", "UNIQ_KEY\x01U\x02"])
def test_a_disk_that_does_not_answer_in_time_is_told_as_such(tmp_path: Path, properties: str) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        await client.send("T")
        await client.send("T")
        recorder = Recorder()
        broker.acks._timeout = -1.0
        request = Command.request(310, send_fields("T", properties=properties), b"slow")
        assert broker.handlers[310](recorder, request) is None  # type: ignore[arg-type]
        assert recorder.answers == []
        broker.acks.expire()
        (answer,) = recorder.answers
        assert (answer.code, answer.remark, answer.fields["queueOffset"]) == (10, None, "2")

    play(tmp_path, scene)
