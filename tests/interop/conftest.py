"""RocketMQ's store for the tests of this folder: one JVM per version, each scenario written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from interop_support import JavaSide, Written, write_scenario

from penstock.bench.peer import VERSIONS, Version, missing_tools


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    absent = missing_tools()
    asked_for = "interop" in str(config.getoption("markexpr")).replace("not interop", "")
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        item.add_marker(pytest.mark.interop)
        # Who asks for interop by name wants to hear that it can't run; everybody else may pass by.
        if absent and not asked_for:
            item.add_marker(pytest.mark.skip(reason=f"{' and '.join(absent)} not found"))


@pytest.fixture(scope="session")
def java() -> Iterator[Callable[[Version], JavaSide]]:
    sides = {version: JavaSide(version) for version in VERSIONS}
    yield lambda version: sides[version]
    for side in sides.values():
        side.close()


@pytest.fixture(scope="session")
def written(
    java: Callable[[Version], JavaSide], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Version, str], Written]:
    folder = tmp_path_factory.mktemp("written")
    done: dict[tuple[Version, str], Written] = {}

    def write(version: Version, scenario: str) -> Written:
        if (version, scenario) not in done:
            done[version, scenario] = write_scenario(java(version), folder, scenario)
        return done[version, scenario]

    return write
