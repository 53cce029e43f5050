"""The event loop that the tests of a module run on, one kind after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop


def run(main: Coroutine[Any, Any, Any]) -> None:
    """As ``asyncio.run``, on a loop of the present kind."""
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
