"""Clusters and clients for the tests of this folder: each is started once, by the first test that asks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

pytest.register_assert_rewrite("client_scenarios", "stage", "pop_scenarios")

from running import clusters, on_demand  # noqa: E402
from stage import Cluster, Driver  # noqa: E402

from penstock.bench.golang import GoClient, go_missing  # noqa: E402
from penstock.bench.peer import INTEROP_OPTIONS, Peer  # noqa: E402

TOOLS = ("java", "mvn")
# Transactions are asked about soon, so that a test need not wait a minute.
SETTINGS: dict[str, object] = {
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 5000,
    "traceTopicEnable": "true",
    "mappedFileSizeCommitLog": 64 << 20,
    "enablePropertyFilter": "true",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    asked_for = "interop" in str(config.getoption("markexpr")).replace("not interop", "")
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.interop)
            if absent and not asked_for:
                item.add_marker(pytest.mark.skip(reason=f"{' and '.join(absent)} not found"))
            # The package managers of many systems have no Go that is new enough: said, not demanded.
            if "[go-" in item.name and go_missing():
                item.add_marker(pytest.mark.skip(reason="go not found: the Go client is left out"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    with clusters(tmp_path_factory, SETTINGS) as find:
        yield find


@pytest.fixture(scope="session")
def client() -> Iterator[Callable[[str], Driver]]:
    kinds: dict[str, Callable[[], Any]] = {
        "java-5.5.0": lambda: Peer("ClientDriver", "5.5.0", INTEROP_OPTIONS),
        "java-4.9.7": lambda: Peer("ClientDriver", "4.9.7", INTEROP_OPTIONS),
        "go": GoClient,
    }
    with on_demand(kinds) as find:
        yield find


@pytest.fixture(scope="session")
def word() -> Callable[[], str]:
    """A word nobody used before, in this run or another; names of topics and groups end in it.

    Clients that consume by broadcast keep their offsets in files of their own, which outlive a run.
    """
    run, numbers = token_hex(3), count(1)
    return lambda: f"n{run}x{next(numbers)}"
