"""Where a stream began, kept in a file: ``start.json`` under the option ``stateLocation``.

Spark does not tell a source where the checkpoint is. "latest" or a time means something else at every start;
what it meant the first time is written here before the first batch is planned, and wins ever after.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import CorruptFile, StoreError, UsageError
from penstock.spark.location import parse_location
from penstock.spark.offsets import StreamOffset

NAME = "start.json"
VERSION = 1


class StartFile:
    """The start of one query on one store."""

    def __init__(self, location: str, store: str) -> None:
        """``location`` is a folder, or a URI of one that can be written; it is made on ``keep``."""
        self._folder = parse_location(location)
        self._file = self._folder.child(NAME)
        self._store = store

    def load(self) -> StreamOffset | None:
        """The start that was kept, None before the first time. Raises when it is another store's."""
        storage = self._folder.storage
        try:
            if not storage.exists(self._file.path):
                return None
            data = storage.read_file(self._file.path)
        except OSError as error:
            raise StoreError(f"can't be read: {error.strerror or error}", file=str(self._file)) from error
        return self._decode(data)

    def keep(self, start: StreamOffset) -> StreamOffset:
        """Keep a start durably, unless there is one; the start that holds from now on."""
        kept = self.load()
        if kept is not None:
            return kept
        content = {"v": VERSION, "store": self._store, "start": start.to_json()}
        storage = self._folder.storage
        try:
            storage.makedirs(self._folder.path)
            storage.write_atomic(self._file.path, json.dumps(content).encode())
        except (OSError, StoreError) as error:
            reason = error.strerror or error if isinstance(error, OSError) else error.message
            raise StoreError(
                f"the start of the stream can't be kept: {reason}",
                file=str(self._file),
                hint="stateLocation is a folder that the driver can write",
            ) from error
        return start

    def _decode(self, data: bytes) -> StreamOffset:
        hint = "remove it together with the query's checkpoint to begin anew"
        try:
            content: Any = json.loads(data)
        except ValueError as error:
            raise CorruptFile(str(self._file), found=f"no JSON: {error}", hint=hint) from None
        if not isinstance(content, dict) or content.get("v") != VERSION:
            raise CorruptFile(str(self._file), found="not the start of a stream", hint=hint)
        if content.get("store") != self._store:
            raise UsageError(
                f"{self._file} keeps the start of a stream from {content.get('store')}, not {self._store}",
                hint="give each query its own stateLocation",
            )
        return StreamOffset.parse(content.get("start") or {})
