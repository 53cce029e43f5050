"""What is exported: the queues of a store, or of brokers, under the names that an export keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.errors import UsageError
from penstock.spark.bounds import StoreBounds
from penstock.spark.options import ReadOptions
from penstock.spark.places import open_places
from penstock.spark.planning import plan_queues
from penstock.spark.ranges import QueueKey, QueueRange

if TYPE_CHECKING:
    from penstock.spark.body import AnySplit


class Exported(Protocol):
    """Queues by plain topic and number."""

    @property
    def uri(self) -> str: ...
    def resolve(self, options: ReadOptions) -> list[QueueRange]: ...
    def earliest(self) -> dict[QueueKey, int]: ...
    def latest(self) -> dict[QueueKey, int]: ...
    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[tuple[int, int, int]]: ...
    def plan(self, options: ReadOptions, ranges: Sequence[QueueRange]) -> Sequence[AnySplit]: ...
    def close(self) -> None: ...


def exported(options: ReadOptions) -> Exported:
    """The one store, or the brokers, that the options name."""
    if options.namesrv is not None:
        return ExportedBrokers(options)
    places = open_places(options.path)
    if len(places) != 1:
        raise UsageError(f"the path names {len(places)} stores", hint="export one store at a time")
    return ExportedStore(places[0])


class ExportedStore(StoreBounds):
    """A store directory."""

    def plan(self, options: ReadOptions, ranges: Sequence[QueueRange]) -> Sequence[AnySplit]:
        return plan_queues(self, options, ranges)


class ExportedBrokers:
    """Brokers that run. A file holds queues of a topic by their numbers: so no two brokers may have the same
    number of a topic.
    """

    def __init__(self, options: ReadOptions) -> None:
        from penstock.spark.network.watch import BrokerWatch

        self._watch = BrokerWatch(options)
        self._names: dict[QueueKey, str] = {}

    @property
    def uri(self) -> str:
        return self._watch.uri

    def resolve(self, options: ReadOptions) -> list[QueueRange]:
        self._watch.refresh(thoroughly=True)
        for name, queue_id in self._watch.latest():
            topic = name.partition("@")[0]
            if self._names.setdefault((topic, queue_id), name) != name:
                raise UsageError(
                    f"several brokers have queue {queue_id} of {topic}",
                    hint="export the store of each broker, by its path",
                )
        ranges = self._watch.bounds.resolve(options)
        return [part._replace(topic=part.topic.partition("@")[0]) for part in ranges]

    def earliest(self) -> dict[QueueKey, int]:
        return {(name.partition("@")[0], queue): low for (name, queue), low in self._watch.earliest().items()}

    def latest(self) -> dict[QueueKey, int]:
        return {(name.partition("@")[0], queue): high for (name, queue), high in self._watch.latest().items()}

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        return self._watch.units((self._names[topic, queue_id], queue_id), begin, end)

    def plan(self, options: ReadOptions, ranges: Sequence[QueueRange]) -> Sequence[AnySplit]:
        named = [part._replace(topic=self._names[part.topic, part.queue_id]) for part in ranges]
        return self._watch.plan(named, ())

    def close(self) -> None:
        """Connections stay for the next who asks."""
