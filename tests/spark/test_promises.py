"""The tests that the documentation names are there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "spark.md"


def test_every_test_that_the_documentation_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCS.read_text()))
    there = {
        name for file in HERE.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert len(named) > 30
    assert named <= there, named - there
