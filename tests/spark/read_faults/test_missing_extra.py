"""Without the extra: an error that says what to install, and everything else goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_others(name, path=None, target=None):
    return None if name.split(".")[0] in {missing!r} else find(name, path, target)
PathFinder.find_spec = find_others
"""


def run(missing: tuple[str, ...], code: str) -> str:
    """What a fresh interpreter without some packages prints."""
    source = Path(__file__).parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing) + code],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("missing", [("pyspark",), ("pyarrow",), ("pyspark", "pyarrow")])
def test_session_says_what_to_install(missing: tuple[str, ...]) -> None:
    told = run(
        missing,
        "import penstock.spark\n"
        "from penstock.errors import PenstockError\n"
        "try:\n    penstock.spark.session()\n"
        "except PenstockError as error:\n    print(error)",
    )
    assert missing[0] in told and "pip install" in told and "spark" in told


def test_uri_without_pyarrow_says_what_to_install() -> None:
    told = run(
        ("pyarrow",),
        "from penstock.errors import PenstockError\n"
        "from penstock.spark.places import open_places\n"
        "try:\n    open_places('s3://bucket/store')\n"
        "except PenstockError as error:\n    print(error)",
    )
    assert "pyarrow" in told and "penstock[spark]" in told


def test_local_places_need_no_pyarrow(whole: Path) -> None:
    told = run(
        ("pyarrow", "pyspark"),
        f"from penstock.spark.places import open_places\nprint(open_places({str(whole)!r})[0].has_queues)",
    )
    assert told.strip() == "True"
