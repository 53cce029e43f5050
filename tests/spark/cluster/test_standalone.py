"""The source and the jobs on a standalone cluster give what one process gives, also after a kill."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Answer, answer_of
from .standalone import Standalone, kill
from .work import wait_for

pytestmark = pytest.mark.cluster
Driver = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Standalone(folder) as running:
        yield running


def test_a_cluster_gives_what_one_process_gives(
    cluster: Standalone, driver: Driver, local_answer: Answer, tmp_path: Path
) -> None:
    found = answer_of(driver(cluster.url, "scan+jobs", tmp_path / "driver"))
    assert found["scan"]["rows"] == 30_000
    assert found["jobs"]["verify"][0] is True
    assert found == {"scan": local_answer("scan"), "jobs": local_answer("jobs")}


def test_a_worker_killed_while_its_task_has_rows_out_costs_nothing(
    cluster: Standalone, driver: Driver, local_answer: Answer, tmp_path: Path
) -> None:
    folder = tmp_path / "driver"
    running = driver(cluster.url, "gated", folder)
    wait_for(lambda: running.poll() is not None or len(list(folder.glob("at-work-*"))) >= 2)
    kill(cluster.workers[0])
    (folder / "go").touch()
    assert answer_of(running)["gated"] == local_answer("gated")


def test_a_job_ends_right_when_a_worker_is_killed_in_its_middle(
    cluster: Standalone, driver: Driver, local_answer: Answer, tmp_path: Path
) -> None:
    running = driver(cluster.url, "killing_verify", tmp_path / "driver", cluster.workers[1].pid)
    found = answer_of(running)["killing_verify"]
    assert found == local_answer("killing_verify")
    assert found["killed in the middle"]
    assert cluster.workers[1].wait(60) != 0
