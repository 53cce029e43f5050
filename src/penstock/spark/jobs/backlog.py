"""How far consumer groups are behind, from the offsets they committed."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.places import Place
from penstock.store.readonly import ReadOnlyStore


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group at one queue.

    ``offsets`` is the number of messages it has to read, ``lost`` how many were deleted before it read them.
    ``milliseconds`` is the age of the first message it has to read, measured at the time of the statistics;
    0 when it has read everything, None when that message cannot be read.
    """

    group: str
    topic: str
    queue_id: int
    committed: int
    min_offset: int
    max_offset: int
    offsets: int
    lost: int
    milliseconds: int | None


def group_lags(place: Place, now_ms: int) -> list[GroupLag]:
    """Every group and queue that the store has a consumer offset of, sorted; none where there are no queues
    or no file.
    """
    if not place.has_queues:
        return []
    lags = []
    with ReadOnlyStore(place.root, storage=place.storage) as store:
        for (topic, group), queues in sorted(store.consumer_offsets.table().items()):
            for queue_id, committed in sorted(queues.items()):
                low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                start = min(max(committed, low), high)
                lags.append(
                    GroupLag(
                        group=group,
                        topic=topic,
                        queue_id=queue_id,
                        committed=committed,
                        min_offset=low,
                        max_offset=high,
                        offsets=high - start,
                        lost=max(0, min(low, high) - committed),
                        milliseconds=_age(store, topic, queue_id, start, high, now_ms),
                    )
                )
    return lags


def _age(store: ReadOnlyStore, topic: str, queue_id: int, start: int, end: int, now_ms: int) -> int | None:
    if start >= end:
        return 0
    messages = store.get(topic, queue_id, start, 1).messages
    return max(0, now_ms - messages[0].store_timestamp) if messages else None
