"""Work done again and again in the background, which an error does not end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.errors import PenstockError

log = logging.getLogger("penstock.client")


class Periodic:
    """Runs ``work`` every ``interval`` seconds, and at once when woken.

    ``work`` returns None, or how long to wait until the next time instead. An error is logged and the work
    is done again after the interval.
    """

    def __init__(
        self, name: str, interval: float, work: Callable[[], Awaitable[float | None]], *, delay: float = 0.0
    ) -> None:
        self.name = name
        self.interval = interval
        self._work = work
        self._woken = asyncio.Event()
        self._stopped = False
        self._task = asyncio.get_running_loop().create_task(self._run(delay), name=f"penstock-{name}")

    def wake(self) -> None:
        """Do it now, or once more after the time that is under way."""
        self._woken.set()

    async def stop(self) -> None:
        """End it, also in the middle of its work."""
        self._stopped = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, delay: float) -> None:
        await self._pause(delay)
        while not self._stopped:
            self._woken.clear()
            pause: float | None = None
            try:
                pause = await self._work()
            except PenstockError as error:
                log.warning("%s: %s", self.name, error)
            except Exception:
                log.exception("%s failed", self.name)
            await self._pause(self.interval if pause is None else pause)

    async def _pause(self, seconds: float) -> None:
        if seconds <= 0 or self._woken.is_set():
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
