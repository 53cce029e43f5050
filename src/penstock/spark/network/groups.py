"""A stream's place as the offsets of a consumer group, kept by the brokers themselves."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.errors import GroupNotExist
from penstock.errors import UsageError
from penstock.message.topic import validate_topic
from penstock.spark.network.brokers import Brokers
from penstock.spark.network.planning import access_of
from penstock.spark.offsets import Places
from penstock.spark.options import ReadOptions


class BrokerGroup:
    """Tells brokers how far a stream is, as a consumer of the group would."""

    def __init__(self, options: ReadOptions, group: str) -> None:
        if reason := validate_topic(group):
            raise UsageError(reason.replace("topic", "commitGroup"))
        self._access = access_of(options)
        self._group = group
        self._published: Mapping[tuple[str, int], int] = {}

    def publish(self, places: Places) -> bool:
        """Make ``places`` the group's: the next offset to read of each queue. Whether anything was sent."""
        changed = {key: offset for key, offset in places.items() if self._published.get(key) != offset}
        if not changed:
            return False
        brokers = Brokers.of(self._access)
        try:
            brokers.run(brokers.commit(self._group, changed))
        except GroupNotExist as error:
            raise UsageError(
                f"the brokers have no group {self._group!r}", hint="create it before, or let brokers make it"
            ) from error
        self._published = dict(places)
        return True
