"""Both storages behind one fixture: what is promised of one is promised of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.files import DiskStorage, MemoryStorage

from .place import Place


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return Place(DiskStorage(), str(tmp_path))
    storage = MemoryStorage()
    storage.makedirs("/store")
    return Place(storage, "/store")


@pytest.fixture
def memory() -> MemoryStorage:
    storage = MemoryStorage(clock=ManualClock())
    storage.makedirs("/s")
    return storage
