"""Who consumes: groups, their connections and what they subscribe to (protocol 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.broker.subscription import Subscription
from penstock.remoting import Connection

BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"
GROUPS = "consumer groups"
"""Of a connection's context: the groups it is a member of, so that its end costs no look at all others."""


@dataclass(slots=True)
class Member:
    """A consumer of a group: one client on one connection."""

    connection: Connection
    client_id: str
    language: str
    version: int
    seen: float


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of one group that are connected now. What the last heartbeat said holds for all."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    fingerprint: int = 0
    """Of the last heartbeat that had one (heartbeat V2)."""

    @property
    def client_ids(self) -> list[str]:
        """Each client once, whatever its connections."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def subscribe(self, wanted: dict[str, Subscription]) -> bool:
        """Follow a heartbeat's subscriptions; whether topics came or went."""
        changed = False
        for topic, new in wanted.items():
            old = self.subscriptions.get(topic)
            if old is None:
                changed = True
            if old is None or new.version > old.version:
                self.subscriptions[topic] = new
        for topic in [known for known in self.subscriptions if known not in wanted]:
            del self.subscriptions[topic]
            changed = True
        return changed


class Consumers:
    """All consumer groups with a live member.

    ``on_change`` is called with a group whose members or topics changed: its clients have to rebalance.
    """

    def __init__(self, now: Callable[[], float], on_change: Callable[[ConsumerGroup], object]) -> None:
        self._now = now
        self._on_change = on_change
        self._groups: dict[str, ConsumerGroup] = {}
        self.find: Callable[[str], ConsumerGroup | None] = self._groups.get

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def register(
        self,
        name: str,
        connection: Connection,
        client_id: str,
        *,
        language: str,
        version: int,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: dict[str, Subscription] | None,
        notify: bool,
    ) -> bool:
        """Take a heartbeat of a consumer; whether the group changed. Without subscriptions they stay."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = ConsumerGroup(name)
        group.consume_type = consume_type
        group.message_model = message_model
        group.consume_from_where = consume_from_where
        member = group.members.get(connection)
        changed = member is None
        group.members[connection] = Member(connection, client_id, language, version, self._now())
        connection.context.setdefault(GROUPS, set()).add(name)
        if subscriptions is not None:
            changed = group.subscribe(subscriptions) or changed
        if changed and notify and message_model != BROADCASTING:
            self._on_change(group)
        return changed

    def unregister(self, name: str, client_id: str, connection: Connection) -> bool:
        """A consumer leaves by its own word; whether it was there."""
        group = self._groups.get(name)
        if group is None:
            return False
        member = group.members.get(connection)
        if member is None or (client_id and member.client_id != client_id):
            return False
        self._drop(group, connection)
        return True

    def lost(self, connection: Connection) -> None:
        """A connection is gone: with it every group it was a member of."""
        for name in list(connection.context.get(GROUPS, ())):
            group = self._groups.get(name)
            if group is not None and connection in group.members:
                self._drop(group, connection)

    def expire(self, seconds: float) -> list[Connection]:
        """Forget members that sent no heartbeat for so long; their connections, to be closed."""
        now = self._now()
        gone: list[Connection] = []
        for group in list(self._groups.values()):
            for connection, member in list(group.members.items()):
                if now - member.seen > seconds:
                    gone.append(connection)
                    self._drop(group, connection)
        return gone

    def _drop(self, group: ConsumerGroup, connection: Connection) -> None:
        del group.members[connection]
        connection.context[GROUPS].discard(group.name)
        if not group.members:
            self._groups.pop(group.name, None)
        elif group.message_model != BROADCASTING:
            self._on_change(group)

    def subscribers(self, topic: str) -> list[str]:
        """Groups that subscribe to a topic now."""
        return sorted(group.name for group in self._groups.values() if topic in group.subscriptions)
