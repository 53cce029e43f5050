"""Commands run in the test process, against a broker in one of its threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.cli import main
from penstock.testing import RunningBroker
from penstock.testing.plugin import penstock_broker

__all__ = ["Outcome", "command", "penstock_broker"]


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


Command = Callable[..., Outcome]


@pytest.fixture
def command(penstock_broker: RunningBroker, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Run ``penstock …`` against the broker: ``command("topic", "list", "--json")``."""

    def run(*arguments: object) -> Outcome:
        capfdbinary.readouterr()
        code = main([*(str(argument) for argument in arguments), "--namesrv", penstock_broker.namesrv])
        out, err = capfdbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return run
