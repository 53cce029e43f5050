"""Files that people change while a server runs: accounts and certificates. Looked at every second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from penstock.errors import ConfigError
from penstock.security.account import Accounts
from penstock.security.accountfile import load_accounts

log = logging.getLogger("penstock.security")

PERIOD_SECONDS = 1.0


class AccountSource:
    """The accounts of a file, as they were when it was last right."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError: a server that should know its users does not start without them."""
        self.path = path
        self._seen = self._look()
        self.accounts: Accounts = load_accounts(path)

    def reload(self) -> bool:
        """Take the file if it changed; true when it was taken. One that is broken changes nothing."""
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            accounts = load_accounts(self.path)
        except ConfigError as error:
            log.error("the accounts in force stay (%d): %s", len(self.accounts), error)
            return False
        self.accounts = accounts
        log.warning("took %d accounts from %s", len(accounts), self.path)
        return True

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = Path(self.path).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class Watching:
    """Calls each ``reload`` again and again, away from the loop, until it is stopped."""

    def __init__(self, reloads: list[Callable[[], bool]]) -> None:
        self._reloads = reloads
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._reloads and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            for reload in self._reloads:
                await loop.run_in_executor(None, reload)
