"""One Spark session for the whole run: it takes ten seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here; what uses the session goes to one worker of a parallel run, so that there is one."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores, stopped at the end of the run. Tests leave it and its settings as they are."""
    from pyspark import SparkContext

    from penstock.spark.session import session

    # Workers find what a test hands them by its module's name.
    places = [str(HERE.parent.parent / "src"), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    opened = session(
        "local[2]",
        app_name="penstock-tests",
        config={
            # Short tests: compile quickly, not well.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.local.dir": str(tmp_path_factory.mktemp("spark-local")),
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
        },
    )
    yield opened
    opened.stop()
    # It would go on to prepare later sessions, which takes a minute, and a test run has only this one.
    SparkContext._gateway.proc.kill()
