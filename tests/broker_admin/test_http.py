"""The web port: metrics for Prometheus, health for supervisors, a page for people."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import pytest

from broker_admin.conftest import Operator

Operate = Callable[..., None]


async def fetch(operator: Operator, request: bytes) -> tuple[int, str, str]:
    address = operator.broker.http_address
    assert address is not None
    host, port = address.removeprefix("http://").rstrip("/").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    data = await reader.read()
    writer.close()
    head, _, body = data.decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_metrics_count_messages_by_topic_and_group(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        await operator.create("T", 1)
        await operator.send("T", b"one")
        await operator.send("T", b"two")
        await operator.heartbeat("G", "T")
        await operator.done(15, consumerGroup="G", topic="T", queueId=0, commitOffset=1)
        await operator.done(202, topic="T")
        status, head, body = await fetch(operator, get("/metrics"))
        assert status == 200 and "text/plain; version=0.0.4" in head
        own = 'cluster="DefaultCluster",node_id="broker-a"'
        assert f'rocketmq_messages_in_total{{{own},topic="T"}} 2' in body
        assert f'rocketmq_consumer_lag_messages{{{own},topic="T",consumer_group="G"}} 1' in body
        assert f'rocketmq_consumer_connections{{{own},consumer_group="G"}} 1' in body
        line = re.compile(r"(# (HELP|TYPE) \w+ .+|\w+\{[^}]*\} [-+.\de]+)")
        assert all(line.fullmatch(each) for each in body.splitlines())

    operate(scenario, http_port=0)


def test_health_says_what_is_wrong(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        status, _, body = await fetch(operator, get("/health"))
        assert (status, json.loads(body)["status"]) == (200, "ok")
        operator.broker.draining = True
        status, _, body = await fetch(operator, get("/health?verbose"))
        assert (status, json.loads(body)["faults"]) == (503, ["stopping"])
        operator.broker.draining = False
        status, head, body = await fetch(operator, get("/"))
        assert status == 200 and "text/html" in head and operator.broker.address in body

    operate(scenario, http_port=0)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/etc/passwd"), 404),
        (get("/../../x"), 404),
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"\xff\xfe\r\n\r\n", 400),
    ],
)
def test_wrong_requests_get_a_clear_status(operate: Operate, request_bytes: bytes, status: int) -> None:
    async def scenario(operator: Operator) -> None:
        assert (await fetch(operator, request_bytes))[0] == status

    operate(scenario, http_port=0)


def test_without_a_port_there_is_no_page(operate: Operate) -> None:
    async def scenario(operator: Operator) -> None:
        assert operator.broker.http_address is None

    operate(scenario)
