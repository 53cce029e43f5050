"""A whole store, and a copy of it for each test to hurt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark.read_faults.reading import message, write_store

COUNT = 2_000


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments or more. Not to be changed."""
    pytest.importorskip("pyarrow")
    return write_store(tmp_path_factory.mktemp("whole") / "store", map(message, range(COUNT)))


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy."""
    return shutil.copytree(whole, tmp_path / "store")
