"""What a broker knows by name and keeps in a file: topics, consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from penstock.broker.statefile import StateFile
from penstock.clock import Clock
from penstock.store.dataversion import DataVersion


class Named(Protocol):
    """An entry; two that are equal say the same."""

    @property
    def name(self) -> str: ...


_Entry = TypeVar("_Entry", bound=Named)


class ConfigTable(Generic[_Entry]):
    """Entries by name, with a version that grows with every change. Lives on the loop; the file follows.

    ``on_change`` is called with every entry that is new, changed or (with None) gone.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[str, _Entry] = {}
        self.find: Callable[[str], _Entry | None] = self._table.get
        """The entry as it is; never makes one."""
        self.version = DataVersion()
        self.file: StateFile | None = None
        self.on_change: list[Callable[[str, _Entry | None], object]] = []

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[_Entry]:
        return iter(list(self._table.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def _load(self, content: dict[str, Any], member: str, make: Callable[[str, Any], _Entry]) -> None:
        """Take over the table that a file holds under a name, and its version."""
        for name, value in object_of(content, member).items():
            self._table[str(name)] = make(str(name), value)
        self.version = DataVersion.from_json(content.get("dataVersion"))

    def put(self, entry: _Entry) -> _Entry:
        """Add or replace an entry. The same again changes nothing."""
        if self._table.get(entry.name) != entry:
            self._table[entry.name] = entry
            self._changed()
            for listener in self.on_change:
                listener(entry.name, entry)
        return entry

    def delete(self, name: str) -> bool:
        """Forget an entry; whether there was one."""
        if self._table.pop(name, None) is None:
            return False
        self._changed()
        for listener in self.on_change:
            listener(name, None)
        return True

    def _changed(self) -> None:
        self.version = self.version.next(self._clock.now_ms())
        if self.file is not None:
            self.file.changed()


def object_of(content: Any, member: str) -> dict[Any, Any]:
    """An object inside of another, empty when it is not there. ValueError when either is none."""
    if not isinstance(content, dict):
        raise ValueError("the file holds no object")
    found = content.get(member) or {}
    if not isinstance(found, dict):
        raise ValueError(f"{member} is no object")
    return found
