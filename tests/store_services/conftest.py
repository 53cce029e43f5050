"""Fixtures: a clock that stands still, and a store over it: a few lines in memory, and the real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fakestore import FakeStore
from realstore import RealStore

from penstock.clock import ManualClock
from penstock.files.memory import MemoryStorage
from penstock.store.timerhook import schedule_hook


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture(params=["fake", "real"])
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Any]:
    storage = MemoryStorage(clock=clock)
    storage.makedirs("/store/config")
    if request.param == "fake":
        yield FakeStore(clock, storage, hooks=[schedule_hook])
        return
    store = RealStore(clock, storage, [schedule_hook])
    yield store
    store.real.abandon()
