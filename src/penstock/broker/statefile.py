"""A table of the broker on its way to a file under ``config/``: never on the loop, never half."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from penstock.errors import CorruptFile
from penstock.store.jsonfile import FileAccess, JsonFile

log = logging.getLogger("penstock.broker")

RETRY_SECONDS = 1.0


class Table(Protocol):
    """What a file may follow."""

    file: Any

    def load(self, content: Any) -> None: ...
    def content(self) -> Any: ...


class StateFile:
    """One JSON file that follows a table in memory.

    ``changed`` says that the table changed; it is written by ``writer``'s thread soon after, many changes at
    once. Changes made while a write runs are in the next one.
    """

    def __init__(self, file: JsonFile, content: Callable[[], Any], writer: Executor) -> None:
        """``content`` makes what the file is to hold; it is called on the loop."""
        self._file = file
        self._content = content
        self._writer = writer
        self._changes = 0
        self._written = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def load(self) -> Any:
        """What an earlier run left, or None. Raises CorruptFile when it can't be read, nor its backup."""
        return self._file.load()

    def changed(self) -> None:
        """The table is not what the file holds any more."""
        self._changes += 1
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._write())

    def saved(self) -> asyncio.Future[None]:
        """Done when everything up to now is on disk; fails when the disk refuses it."""
        future = asyncio.get_running_loop().create_future()
        if self._changes == self._written:
            future.set_result(None)
        else:
            self._waiting.append((self._changes, future))
        return future

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._written < self._changes:
                changes = self._changes
                try:
                    await loop.run_in_executor(self._writer, self._file.save, self._content())
                except Exception as error:  # whatever it was: the table is kept, and tried again
                    log.error("state is not saved: %s", error)
                    self._settle(changes, error)
                    if self._closed:
                        return
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._written = changes
                self._settle(changes, None)
        finally:
            self._task = None

    def _settle(self, changes: int, error: Exception | None) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > changes:
                self._waiting.append((wanted, future))
            elif not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

    async def close(self) -> None:
        """Write what is not yet written, once; later changes are not followed."""
        self._closed = True
        if self._task is not None:
            await self._task
        elif self._written < self._changes:
            await self._write()


def follow(table: Table, storage: FileAccess, path: str, writer: Executor) -> StateFile:
    """Load a table from its file and keep the file up to date from now on."""
    file = StateFile(JsonFile(storage, path), table.content, writer)
    try:
        table.load(file.load())
    except ValueError as error:
        raise CorruptFile(path, found=str(error), hint="restore it from a copy, or delete it") from None
    table.file = file
    return file
