from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.remoting.loop import new_event_loop
from remoting import loops


@pytest.fixture(scope="module", autouse=True, params=["asyncio", "uvloop"])
def kind_of_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every promise holds on both loops: servers run on uvloop, programs that embed a client often do not."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
        loops.factory = new_event_loop
    yield
    loops.factory = asyncio.new_event_loop
