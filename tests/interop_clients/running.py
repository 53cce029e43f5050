"""Brokers and clients of the tests: each is started by the first test that asks, and ends with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias

import pytest
from stage import Cluster

from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.rocketmq import RocketMQ

Kinds: TypeAlias = Mapping[str, Callable[[], AbstractContextManager[Any]]]


@contextmanager
def on_demand(kinds: Kinds) -> Iterator[Callable[[str], Any]]:
    """What gives the running one of a kind."""
    made: dict[str, Any] = {}
    with ExitStack() as running:

        def find(kind: str) -> Any:
            if kind not in made:
                made[kind] = running.enter_context(kinds[kind]())
            return made[kind]

        yield find


@contextmanager
def clusters(
    folders: pytest.TempPathFactory, settings: Mapping[str, object]
) -> Iterator[Callable[[str], Cluster]]:
    """A cluster of ours and one of RocketMQ's with the same settings."""
    kinds: Kinds = {
        "penstock": lambda: PenstockBroker(folders.mktemp("penstock"), settings=settings),
        "rocketmq": lambda: RocketMQ(folders.mktemp("rocketmq"), settings=settings),
    }
    with on_demand(kinds) as find:
        yield find
