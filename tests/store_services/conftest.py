"""Fixtures: a clock that stands still and a store over it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fakestorage import FakeStorage
from fakestore import FakeStore

from penstock.clock import ManualClock
from penstock.store.delayhook import delay_level_hook


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def store(clock: ManualClock) -> FakeStore:
    return FakeStore(clock, FakeStorage(), hooks=[delay_level_hook])
