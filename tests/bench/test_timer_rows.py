"""Which rows of the broker bench are done."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from penstock.bench.broker import timers
from penstock.bench.broker.turns import Scale


@pytest.mark.parametrize("pattern", ["timers", "timers-*", "timers-p99"])
def test_timers_are_measured_by_any_name_of_their_rows(tmp_path: Path, pattern: str) -> None:
    class Asked(Exception):
        pass

    def progress(text: str) -> None:
        raise Asked

    rows = timers.timer_rows(
        tmp_path,
        None,  # type: ignore[arg-type]
        Scale(),
        ("ours",),
        lambda key: fnmatch.fnmatch(key, pattern),
        progress,
    )
    with pytest.raises(Asked):
        next(rows)
