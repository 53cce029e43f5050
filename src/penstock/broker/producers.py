"""Who produces: groups of producers and their connections. A transaction's questions go to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.remoting import Connection

GROUPS = "producer groups"
"""Of a connection's context: its client id in each of its groups; its end costs no look at others."""


@dataclass(slots=True)
class Producer:
    """A producer of a group: one client on one connection."""

    connection: Connection
    client_id: str
    language: str
    version: int
    seen: float


class Producers:
    """All producer groups with a live member."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._groups: dict[str, dict[Connection, Producer]] = {}
        self._clients: dict[str, Connection] = {}
        self._turn = 0

    def __iter__(self) -> Iterator[tuple[str, list[Producer]]]:
        return iter([(name, list(members.values())) for name, members in self._groups.items()])

    def register(
        self, group: str, connection: Connection, client_id: str, *, language: str, version: int
    ) -> None:
        """Take a heartbeat of a producer."""
        members = self._groups.setdefault(group, {})
        members[connection] = Producer(connection, client_id, language, version, self._now())
        connection.context.setdefault(GROUPS, {})[group] = client_id
        self._clients[client_id] = connection

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """A producer leaves by its own word."""
        self._drop(group, connection)

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        for group in list(connection.context.get(GROUPS, ())):
            self._drop(group, connection)

    def _drop(self, group: str, connection: Connection) -> None:
        members = self._groups.get(group)
        if members is None or members.pop(connection, None) is None:
            return
        if not members:
            del self._groups[group]
        known = connection.context[GROUPS]
        client_id = known.pop(group)
        if client_id not in known.values() and self._clients.get(client_id) is connection:
            del self._clients[client_id]

    def expire(self, seconds: float) -> list[Connection]:
        """Forget producers that sent no heartbeat for so long; their connections, to be closed."""
        now = self._now()
        gone = {
            connection
            for members in self._groups.values()
            for connection, member in members.items()
            if now - member.seen > seconds
        }
        for connection in gone:
            self.lost(connection)
        return list(gone)

    def members(self, group: str) -> list[Producer]:
        return list(self._groups.get(group, {}).values())

    def one_of(self, group: str) -> Connection | None:
        """A live connection of the group, another one each time."""
        members = [connection for connection in self._groups.get(group, ()) if not connection.closed]
        if not members:
            return None
        self._turn += 1
        return members[self._turn % len(members)]

    def client(self, client_id: str) -> Connection | None:
        """The connection of a client id that some producer group knows."""
        connection = self._clients.get(client_id)
        return None if connection is None or connection.closed else connection
