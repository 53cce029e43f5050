from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from format.golden_log import GoldenLog
from golden_store import unpack


@pytest.fixture(scope="session")
def read_golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], GoldenLog]:
    """Golden logs, unpacked once for all tests: nothing here writes to them, and a timer wheel has 38 MB."""

    @cache
    def read(case: str, recovered: bool) -> GoldenLog:
        return GoldenLog(unpack(case, tmp_path_factory.mktemp(case), recovered=recovered))

    return read


@pytest.fixture
def golden_log(request: pytest.FixtureRequest, read_golden: Callable[[str, bool], GoldenLog]) -> GoldenLog:
    """The log of the golden case the test is parametrized with (indirectly)."""
    return read_golden(request.param, False)


@pytest.fixture
def recovered_log(request: pytest.FixtureRequest, read_golden: Callable[[str, bool], GoldenLog]) -> GoldenLog:
    """The log of a killed case after the real store recovered it."""
    return read_golden(request.param, True)
