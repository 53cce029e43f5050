"""The queues of a store that a stream reads, looked at again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.spark.bounds import StoreBounds
from penstock.spark.offsets import Places, QueueKey
from penstock.spark.options import ReadOptions
from penstock.spark.places import Place, open_places
from penstock.spark.ranges import Extents, QueueRange

if TYPE_CHECKING:
    from penstock.spark.planning import Split


def stream_place(options: ReadOptions) -> Place:
    """The one store that a stream reads. Raises UsageError for several, or for segments without a store."""
    places = open_places(options.path)
    if len(places) != 1 or not places[0].has_queues:
        what = "segments of a log" if len(places) == 1 else f"{len(places)} stores"
        raise UsageError(
            f"a stream reads one store directory, {options.path} names {what}",
            hint="its offsets are queue offsets: give the directory that holds the log and its queues; for"
            " several stores make a stream of each and unite them",
        )
    return places[0]


class StoreWatch:
    """What a stream knows of its store: as it was at the last ``refresh``."""

    def __init__(self, place: Place, options: ReadOptions | None = None) -> None:
        self._bounds = StoreBounds(place)
        self._options = options
        self._seen: Extents = {}
        self._extents: Extents = {}
        self._looked = False

    @classmethod
    def open(cls, path: str) -> StoreWatch:
        """All queues of the store at a path or URI."""
        return cls(stream_place(ReadOptions(path=path)))

    @property
    def uri(self) -> str:
        return self._bounds.place.uri

    @property
    def bounds(self) -> StoreBounds:
        """The queues, for planning a batch; what else was found in the place is looked at again."""
        self._bounds.place = self._bounds.place.refreshed()
        return self._bounds

    def refresh(self, *, thoroughly: bool = False) -> bool:
        """Look again; False when nothing changed. New queues are seen within a second, or at once."""
        if not self._bounds.refresh(queues=True if thoroughly else None) and self._looked:
            return False
        extents = self._bounds.store.extents()
        if self._looked and extents == self._seen:
            return False
        self._looked = True
        self._seen = extents
        options = self._options
        self._extents = {
            key: ends for key, ends in extents.items() if options is None or options.wants_queue(*key)
        }
        return True

    def plan(self, ranges: Sequence[QueueRange], columns: Sequence[str]) -> list[Split]:
        """The tasks that read these ranges."""
        from penstock.spark.planning import plan

        return plan(self._options or ReadOptions(), ranges, columns=columns, bounds=self.bounds)

    def earliest(self) -> Places:
        return {key: low for key, (low, _) in self._extents.items()}

    def latest(self) -> Places:
        return {key: high for key, (_, high) in self._extents.items()}

    def starts(self) -> Places:
        """Where the options begin, in every queue there is."""
        return self._bounds.starts(self._options or ReadOptions(), self._extents)

    def units(self, key: QueueKey, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Queue offset, place in the log and size of the messages between two offsets."""
        return self._bounds.units(*key, begin, end)

    def first_place(self, key: QueueKey, offset: int) -> int:
        """Where in the log the message of an offset lies, 0 if it has none: then its turn is at once."""
        unit = self._bounds.unit(*key, offset)
        return unit[0] if unit is not None else 0

    def bytes_between(self, topic: str, queue_id: int, begin: int, end: int) -> int:
        return self._bounds.bytes_between(topic, queue_id, begin, end)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When the message of an offset was stored, in milliseconds; None when it is gone."""
        unit = next((u for u in self._bounds.units(topic, queue_id, offset, offset + 1) if u[2]), None)
        message = self._bounds.store.lookup(unit[1]) if unit is not None else None
        return message.store_timestamp if message is not None else None
