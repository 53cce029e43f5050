"""Command lines run inside of the test process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err)
        return found


def run_command(captured: pytest.CaptureFixture[bytes], *arguments: object) -> Outcome:
    """Run ``penstock`` with these arguments; ``captured`` has its output alone."""
    captured.readouterr()
    code = main([str(argument) for argument in arguments])
    out, err = captured.readouterr()
    return Outcome(code, out.decode(), err.decode())
