"""The page of names tells a reader of RocketMQ where things are: each of them is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "names.md").read_text()
ROWS = [line.strip("| \n").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]


def find(dotted: str) -> object:
    """The module, class or attribute of this name; fails where there is none."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"there is no {dotted}")


def places(row: list[str]) -> list[str]:
    """Dotted names of our column: a bare name belongs to the class named before it."""
    theirs, ours = row
    found: list[str] = []
    for name in re.findall(r"`([^`]+)`", ours):
        if name.startswith("penstock."):
            found.append(name)
        else:
            found.append(f"{found[-1].rpartition('.')[0]}.{name}")
    if ours.startswith("the same in"):
        found = [f"{found[0]}.{name}" for name in re.findall(r"`([^`]+)`", theirs)]
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split("`")[1])
def test_what_the_page_of_names_lists_is_there(row: list[str]) -> None:
    listed = places(row)
    assert listed
    for dotted in listed:
        find(dotted)


def test_the_page_of_names_has_rows() -> None:
    assert len(ROWS) > 30
