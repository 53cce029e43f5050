"""A broker on a store that was filled before it started: the same messages by path and by name server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import RunningBroker
from spark.read.stores import CONFIG, TOPICS, fill


def serve(path: Path) -> RunningBroker:
    """A broker on a filled store, not started."""
    return RunningBroker(path, store=CONFIG)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """600 messages of three topics. Not to be changed."""
    with serve(fill(tmp_path_factory.mktemp("network") / "store")) as broker:
        for topic in TOPICS:
            broker.create_topic(topic, 2)
        yield broker
