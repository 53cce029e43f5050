"""Commands run in the test process, against a broker in one of its threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commands import Outcome, run_command
from penstock.testing import RunningBroker
from penstock.testing.plugin import penstock_broker

__all__ = ["Outcome", "command", "penstock_broker"]


Command = Callable[..., Outcome]


@pytest.fixture
def command(penstock_broker: RunningBroker, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Run ``penstock …`` against the broker: ``command("topic", "list", "--json")``."""

    def run(*arguments: object) -> Outcome:
        return run_command(capfdbinary, *arguments, "--namesrv", penstock_broker.namesrv)

    return run
