"""A broker killed at any step of its timer delivers every acked message once, and none before its time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import killed_timer
import pytest

from broker.talking import Client, properties_text, records
from penstock.errors import RemotingError
from penstock.format.record import RecordFields

pytestmark = pytest.mark.crash

MESSAGES = 60
SPAN_MS = 1500


@contextmanager
def broker(store: Path, *where: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, killed_timer.__file__, str(store), *where]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


async def send_all(address: str) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """Timers over a span of time, some of them recalled, until the broker dies.

    Answers what was acked, what of it was recalled, and what may have been, for no answer came.
    """
    client = Client(address)
    acked: set[bytes] = set()
    recalled: set[bytes] = set()
    unsure: set[bytes] = set()
    try:
        for number in range(MESSAGES):
            body = f"{number}".encode()
            deliver = time.time_ns() // 1_000_000 + 100 + number * 997 % SPAN_MS
            text = properties_text(UNIQ_KEY=f"K{number}", TIMER_DELIVER_MS=str(deliver))
            answer = await client.send("T", body, properties=text)
            assert answer.code == 0
            acked.add(body)
            if number % 10 == 3 and "recallHandle" in answer.fields:
                fields = {"producerGroup": "P", "topic": "T", "recallHandle": answer.fields["recallHandle"]}
                unsure.add(body)
                answer = await client.call(370, fields)
                unsure.discard(body)
                if answer.code == 0:
                    recalled.add(body)
    except RemotingError:
        pass
    finally:
        await client.close()
    return acked, recalled, unsure


async def read_until(address: str, wanted: set[bytes]) -> list[RecordFields]:
    """What the topic holds when every wanted message is there and nothing is due any more."""
    client = Client(address)
    found: list[RecordFields] = []
    end = time.monotonic() + 30
    quiet = 0
    try:
        while quiet < 3 or not wanted <= {record.body for record in found}:
            assert time.monotonic() < end, f"missing: {wanted - {record.body for record in found}}"
            answer = await client.pull("T", len(found), flags=6, hold_ms=300)
            quiet = 0 if answer.code == 0 else quiet + 1
            found += records(answer) if answer.code == 0 else []
    finally:
        await client.close()
    return found


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("side", ["before", "behind"])
@pytest.mark.parametrize("step", killed_timer.STEPS)
def test_s20_a_timer_killed_at_any_step_delivers_each_message_once(
    tmp_path: Path, step: str, side: str, count: int
) -> None:
    store = tmp_path / "store"
    with broker(store, step, side, str(count)) as (address, process):
        acked, recalled, unsure = asyncio.run(send_all(address))
        assert process.wait(30) == -9
    with broker(store, "none") as (address, process):
        wanted = acked - recalled - unsure
        found = asyncio.run(read_until(address, wanted))
        process.kill()
        process.wait()
    with broker(store, "none") as (address, _):  # and once more: nothing is left that fires again
        again = asyncio.run(read_until(address, wanted))
    assert [record.body for record in again] == [record.body for record in found]
    times = Counter(record.body for record in found)
    assert not [body for body, number in times.items() if number > 1], "delivered twice"
    assert not recalled & times.keys(), "delivered although recalled"
    for record in found:
        assert record.store_timestamp >= int(record.properties["TIMER_DELIVER_MS"])
