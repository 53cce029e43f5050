"""RocketMQ's own evaluator and ours, over thousands of filters made up on the spot (needs Java and Maven)."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from filters.evaluator import verdicts
from filters.freeze import cases
from filters.ours import native_verdicts, plain_verdicts
from penstock.bench.peer import missing_tools

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing_tools()), reason=f"{' and '.join(missing_tools())} not found"),
]


def test_rocketmq_s_evaluator_gives_the_same_verdicts(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    made = cases(seed, 20_000, 5)
    refused = 0
    for (text, maps), theirs in zip(made, verdicts("5.5.0", made, str(tmp_path)), strict=True):
        assert plain_verdicts(text, maps) == theirs, (seed, text, maps)
        assert native_verdicts(text, maps) == theirs, (seed, text, maps)
        refused += theirs is None
    assert 1000 < refused < 15_000
