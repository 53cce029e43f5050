"""Log lines that strangers can cause: as many as are of use, then only how many more there were."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable


class SparingLog:
    """At most ``most`` lines in a period; the first of a later one says how many were left out."""

    def __init__(
        self,
        logger: logging.Logger,
        most: int = 50,
        seconds: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._most = most
        self._seconds = seconds
        self._now = now
        self._begun = now()
        self._lines = 0
        self.left_out = 0

    def line(self, level: int, text: str, *values: object) -> None:
        """Log it, unless there were too many just now."""
        now = self._now()
        if now - self._begun >= self._seconds:
            self._begun, self._lines = now, 0
            self.tell()
        if self._lines >= self._most:
            self.left_out += 1
            return
        self._lines += 1
        self._logger.log(level, text, *values)

    def tell(self) -> None:
        """Say how many lines were left out, if any were."""
        if self.left_out:
            self._logger.warning("%d more lines of this kind were left out", self.left_out)
            self.left_out = 0
