"""Key-value configuration of a name server: small texts that operators' tools keep there (protocol 2.1)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol


class Follower(Protocol):
    """A file that follows the table."""

    def changed(self) -> None: ...
    def saved(self) -> Awaitable[None]: ...


class KvConfig:
    """Texts by namespace and key. In memory; whoever sets ``file`` is told of changes (``kvConfig.json``)."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}
        self.file: Follower | None = None

    def load(self, content: Any) -> None:
        """Take over what a file holds. ValueError when it is no such table."""
        table = {} if content is None else content.get("configTable") if isinstance(content, dict) else None
        if not isinstance(table, dict) or not all(isinstance(inner, dict) for inner in table.values()):
            raise ValueError("kvConfig.json holds no configTable")
        self._table = {
            str(namespace): {str(key): str(value) for key, value in inner.items()}
            for namespace, inner in table.items()
        }

    def content(self) -> dict[str, Any]:
        """What a file is to hold, as RocketMQ writes it."""
        return {"configTable": {namespace: dict(inner) for namespace, inner in self._table.items()}}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """All keys of a namespace, or None when nothing was ever put there."""
        found = self._table.get(name)
        return None if found is None else dict(found)

    def put(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value
        self._changed()

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value; one that is not there may go too."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self._changed()

    async def saved(self) -> None:
        """Returns when every change up to now is in the file, if there is one; raises when it can't be."""
        if self.file is not None:
            await self.file.saved()

    def _changed(self) -> None:
        if self.file is not None:
            self.file.changed()
