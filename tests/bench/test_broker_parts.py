"""The broker bench counts what it says it counts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.bench.broker.bench import load_rows, whole_rows
from penstock.bench.broker.loads import LOADS
from penstock.bench.broker.nullbroker import NullBroker
from penstock.bench.broker.turns import Measured, first_ack
from penstock.bench.child import ChildFailed
from penstock.bench.cluster import free_port
from penstock.bench.peer import Peer
from penstock.bench.penstockbroker import compiled_environment
from penstock.bench.report import Rows, exit_code
from penstock.bench.row import NEAR, Row
from penstock.errors import PenstockError
from penstock.remoting import Command, RemotingClient, RequestCode


def test_a_row_near_the_ceiling_is_reached_whatever_the_peer_does() -> None:
    def row(ours: float) -> Row:
        return Row("k", "w", "msg/s", ours, 100.0, 1.5, ceiling=120.0)

    assert row(NEAR * 120.0).reached
    assert row(150.0).reached
    assert not row(NEAR * 120.0 - 1).reached


def test_no_port_is_given_twice_and_neighbours_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    # RocketMQ's broker listens beside its port too. It once met its own name server there, and served nobody.
    monkeypatch.setattr("penstock.bench.cluster._PORTS", range(12_010, 12_040))
    monkeypatch.setattr("penstock.bench.cluster._given", set())
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # somebody else's, which is as good
            taken.bind(("127.0.0.1", 12_020))
        given: list[int] = []
        with pytest.raises(PenstockError, match="no free ports"):
            for number in itertools.count():
                port = free_port((-2, 1) if number % 2 else ())
                given += [port - 2, port, port + 1] if number % 2 else [port]
    assert given
    assert len(given) == len(set(given))
    assert 12_020 not in given


def test_the_median_of_a_side_counts() -> None:
    measured = Measured()
    load = next(load for load in LOADS if load.key == "async-1-128")
    for side, rates in (("ours", (10.0, 30.0, 20.0)), ("peer", (5.0, 10.0, 100.0))):
        for rate in rates:
            measured.add(side, load.key, rate)  # type: ignore[arg-type]
            measured.add(side, f"{load.key}-p99_ms", 1 / rate)  # type: ignore[arg-type]
    rate_row, p99_row = load_rows(measured, load)
    assert (rate_row.ours, rate_row.peer, rate_row.ratio) == (20.0, 10.0, 2.0)
    assert p99_row.ratio == pytest.approx(2.0)
    assert p99_row.at_least == pytest.approx(1 / 0.7)


def test_the_first_ack_is_when_it_came_and_not_when_the_client_had_left() -> None:
    class Driver:
        """A client whose first send fails."""

        stopped = acked = 0.0
        sends = 0

        def ask(self, command: str, **_: Any) -> dict[str, Any]:
            if command == "stop-producer":
                self.stopped = time.monotonic()
            if command != "send":
                return {}
            self.sends += 1
            return {"results": [{"status": "SEND_OK"} if self.sends == 2 else {"error": "no route"}]}

    driver = Driver()
    begin = time.monotonic()
    moment = first_ack(cast(Peer, driver), "127.0.0.1:1", "t")
    assert begin <= moment <= driver.stopped


def test_our_broker_is_started_with_the_bytecode_that_an_installed_one_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    compiled_environment.cache_clear()
    try:
        assert "PYTHONDONTWRITEBYTECODE" not in compiled_environment()
        made = {path.name.split(".")[0] for path in (tmp_path / "bytecode").rglob("*.pyc")}
        assert {"up", "broker", "pulling", "messagestore", "loop"} <= made
    finally:
        compiled_environment.cache_clear()


def test_nothing_is_told_that_nobody_measured() -> None:
    assert [row for load in LOADS for row in load_rows(Measured(), load)] == []
    assert list(whole_rows(Measured())) == []


def test_a_group_that_fails_costs_the_others_nothing() -> None:
    def found(*, fails: bool) -> Iterator[Row]:
        yield Row("k", "w", "msg/s", 1.0, None, None)
        if fails:
            raise ChildFailed("no answer")

    told: list[str] = []
    rows = Rows(lambda row: told.append(row.key), told.append)
    rows.keep("first", found(fails=True))
    rows.keep("second", found(fails=False))
    report = rows.to_json()
    assert told == ["k", "first: no answer", "k"]
    assert (len(report["rows"]), report["complete"], report["failures"]) == (2, False, ["first: no answer"])
    assert exit_code(report) == 1


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_ceiling_answers_every_send() -> None:
    async def send(address: str) -> list[int]:
        client = RemotingClient()
        try:
            fields = {"a": "group", "b": "any", "e": "0"}
            sent = [
                Command.request(RequestCode.SEND_MESSAGE_V2, fields, b"x" * n) for n in (1, 1000, 100_000)
            ]
            return [(await client.call(address, command, 5)).code for command in sent]
        finally:
            await client.close()

    with NullBroker() as null:
        assert asyncio.run(send(null.namesrv)) == [0, 0, 0]
