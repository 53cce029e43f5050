from __future__ import annotations

from pathlib import Path

import pytest

from files.place import Place
from format.golden_log import GoldenLog
from golden_store import unpack
from penstock.files import DiskStorage, MemoryStorage


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Both storages: what a queue promises on one it promises on the other."""
    if request.param == "disk":
        return Place(DiskStorage(), str(tmp_path))
    storage = MemoryStorage()
    storage.makedirs("/store")
    return Place(storage, "/store")


@pytest.fixture
def golden_log(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenLog:
    """The golden case the test is parametrized with (indirectly), free to be changed."""
    return GoldenLog(unpack(request.param, tmp_path / "golden"))
