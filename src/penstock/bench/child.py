"""A child process that answers JSON lines: the shape in which both sides of a benchmark run.

A command is ``{"do": name, ...}``; its answer has ``ok`` and, when that is false, ``error`` and ``trace``.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.bench.machine import rss_anon
from penstock.errors import PenstockError

_SAMPLE_SECONDS = 0.1


class ChildFailed(PenstockError):
    """The child answered with an error or ended; ``trace`` is what it had to say."""

    def __init__(self, message: str, *, trace: str = "") -> None:
        super().__init__(f"{message}\n{trace}" if trace else message)
        self.trace = trace


class Child:
    """A running child. Use as a context manager; ``ask`` sends a command and waits for its answer.

    ``peak_rss_anon`` is the most anonymous memory that was seen while a command ran, sampled every 0.1 s;
    ``patience`` how many seconds ``close`` waits for it to end by itself.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.peak_rss_anon = 0
        self.patience = 60.0
        self._log = tempfile.TemporaryFile(prefix="penstock-child-")  # noqa: SIM115 (closed with the child)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(environment),
            # Unbuffered: waiting with select and reading lines must see the same bytes.
            bufsize=0,
        )
        self._received = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False after a kill, a crash or ``close``."""
        return self._process.poll() is None

    def ask(self, do: str, /, **arguments: Any) -> dict[str, Any]:
        """Send one command and return its answer. Raises :class:`ChildFailed` on any other outcome."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise ChildFailed(f"{self.name} had ended before `{do}`", trace=self._errors()) from None
        line = self._read_line()
        if not line:
            code = self._process.wait()
            raise ChildFailed(f"{self.name} ended during `{do}` with code {code}", trace=self._errors())
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            trace = str(answer.get("trace", ""))
            raise ChildFailed(f"{self.name}: `{do}` failed: {answer.get('error')}", trace=trace)
        self.peak_rss_anon = max(self.peak_rss_anon, int(answer.get("rss_anon", 0)))
        return answer

    def wait_killed(self) -> int:
        """Wait for the child to end after a command that kills it, and return its exit code."""
        return self._process.wait(timeout=60)

    def close(self) -> None:
        """End the child by closing its input. Harmless when it ended before."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(timeout=self.patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.alive:
            self._process.kill()
        self.close()

    def _read_line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        while b"\n" not in self._received:
            ready, _, _ = select.select([stdout], [], [], _SAMPLE_SECONDS)
            if not ready:
                self.peak_rss_anon = max(self.peak_rss_anon, rss_anon(self.pid))
                continue
            data = os.read(stdout.fileno(), 1 << 20)
            if not data:
                return b""
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _errors(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4000))
        return self._log.read().decode(errors="replace")


def python_environment() -> dict[str, str]:
    """An environment in which a child finds this very package, installed or not."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
