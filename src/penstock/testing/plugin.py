"""Fixtures for pytest, loaded wherever the package is installed; nothing is imported before it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import RunningBroker


@pytest.fixture
def penstock_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A real broker with its name server, on free ports of loopback, in a directory that goes away."""
    from penstock.testing.broker import RunningBroker

    with RunningBroker(tmp_path / "penstock-broker") as broker:
        yield broker


@pytest.fixture
def penstock_broker_factory(tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Makes and starts brokers: ``penstock_broker_factory(auto_create_topic_enable=False)``."""
    from penstock.testing.broker import RunningBroker

    running: list[RunningBroker] = []

    def make(**settings: Any) -> RunningBroker:
        broker = RunningBroker(tmp_path / f"penstock-broker-{len(running)}", **settings)
        broker.start()
        running.append(broker)
        return broker

    yield make
    for broker in running:
        broker.stop()
