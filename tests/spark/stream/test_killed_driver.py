"""The driver is killed between any two steps, while another process writes: each message arrives once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]


class Process:
    """A script that is talked to through its standard streams."""

    def __init__(self, script: str, *arguments: object) -> None:
        paths = [str(TESTS.parent / "src"), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # to be killed with the Java process that it starts
        )

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def until(self, line: str) -> None:
        """Wait for a line of its output."""
        assert self._process.stdout is not None
        for found in self._process.stdout:
            if found.strip() == line:
                return
        raise AssertionError(f"it ended with {self._process.wait()} before it said {line!r}")

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> int:
        """Close its input and wait for it."""
        self._process.communicate(timeout=300)
        return self._process.returncode


@contextmanager
def running(script: str, *arguments: object) -> Iterator[Process]:
    process = Process(script, *arguments)
    try:
        yield process
    finally:
        if process._process.poll() is None:
            process.kill()


@pytest.mark.cluster
def test_killed_driver_neither_loses_nor_repeats(tmp_path: Path) -> None:
    store, checkpoint, out = tmp_path / "store", tmp_path / "checkpoint", tmp_path / "out"
    out.mkdir()
    arguments = (store, checkpoint, out)
    with running("producer.py", store) as producer:
        producer.until("open")

        def produce(first: int, end: int) -> None:
            producer.say(f"{first} {end}")
            producer.until("done")

        produce(0, 100)
        # "latest" is 100 here, and something else at every later start.
        with running("driver.py", *arguments) as driver:
            driver.until("loaded")
            produce(100, 300)
            driver.say("go")
            driver.until("begin 0")
            produce(300, 1000)
            driver.kill()
        assert list(out.iterdir()) == []
        with running("driver.py", *arguments) as driver:
            driver.until("loaded")
            driver.say("go")
            driver.until("wrote 0")
            driver.until("begin 2")
            produce(1000, 1500)
            driver.until("wrote 2")
            driver.kill()
        with running("driver.py", *arguments, "now") as driver:
            driver.until("loaded")
            driver.say("go")
            driver.until("wrote 2")
            produce(1500, 2000)
            assert driver.end() == 0
        assert producer.end() == 0
    files = sorted(out.glob("*.json"))
    rows = [row for file in files for row in json.loads(file.read_text())]
    assert [file.name for file in files] == [f"{n:06d}.json" for n in range(len(files))]
    assert all(len(json.loads(file.read_text())) <= 200 for file in files)
    assert sorted(row[2] for row in rows) == list(range(100, 1500))
    for queue in (0, 1):
        assert [row[1] for row in rows if row[0] == queue] == list(range(50, 750))
