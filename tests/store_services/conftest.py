"""Fixtures: a clock that stands still and a store over it."""

from __future__ import annotations

import pytest
from fakestore import FakeStore

from penstock.clock import ManualClock
from penstock.files.memory import MemoryStorage
from penstock.store.timerhook import schedule_hook


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def store(clock: ManualClock) -> FakeStore:
    storage = MemoryStorage(clock=clock)
    storage.makedirs("/store/config")
    return FakeStore(clock, storage, hooks=[schedule_hook])
