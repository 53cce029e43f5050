"""``local-cluster``: executors in processes of their own, started by the driver."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Answer, answer_of

pytestmark = pytest.mark.cluster


def test_executors_in_processes_of_their_own_give_what_one_process_gives(
    driver: Callable[..., subprocess.Popen[str]], local_answer: Answer, tmp_path: Path
) -> None:
    found = answer_of(driver("local-cluster[2,1,1024]", "scan+jobs", tmp_path / "driver"))
    assert found == {"scan": local_answer("scan"), "jobs": local_answer("jobs")}
