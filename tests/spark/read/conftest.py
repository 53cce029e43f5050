"""Stores that tests only read are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.read.stores import fill


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 messages in several log files, queue files and index files. Not to be changed."""
    return fill(tmp_path_factory.mktemp("read") / "store")
