"""A stream's place as the offsets of a consumer group, so that RocketMQ's tools and consumers see it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import StoreError, StoreLocked, UsageError
from penstock.spark.offsets import Places
from penstock.spark.places import Place
from penstock.store.consumeroffset import consumer_offsets
from penstock.store.directory import is_locked


class GroupOffsets:
    """Writes a group's offsets into the file of consumer offsets of a store that nobody has open.

    A broker keeps the offsets in memory and writes the file over: publishing under it would be lost, so it is
    refused. The store's lock is held while the file is written, and only then.
    """

    def __init__(self, place: Place, group: str) -> None:
        """Raises UsageError where no group can be kept, StoreLocked when somebody has the store open."""
        if not place.is_local or place.kind != "store":
            raise UsageError(
                f"commitGroup needs a store directory of this machine, {place.uri} is none",
                hint="leave commitGroup out; the stream's own offsets are in its checkpoint",
            )
        if "@" in group or not group.strip():
            raise UsageError(f"commitGroup {group!r} is no name of a consumer group")
        self._place = place
        self._group = group
        self._lock_path = f"{place.root}/lock"
        self._published: Mapping[tuple[str, int], int] = {}
        if is_locked(self._lock_path):
            raise self._refusal("somebody has the store open")

    def publish(self, places: Places) -> bool:
        """Make ``places`` the group's: the next offset to read of each queue. Whether anything was written.

        Durable on return. Other groups and other topics of this group stay as they are.
        """
        changed = {key: offset for key, offset in places.items() if self._published.get(key) != offset}
        if not changed:
            return False
        storage = self._place.storage
        try:
            lock = storage.lock(self._lock_path)
        except StoreLocked as error:
            raise self._refusal(error.message) from None
        except OSError as error:
            raise StoreError(
                f"the offsets of group {self._group} can't be written: {error.strerror}", file=self._lock_path
            ) from error
        try:
            offsets = consumer_offsets(storage, self._place.root)
            offsets.load()
            for (topic, queue_id), offset in places.items():
                offsets.commit(self._group, topic, queue_id, offset)
            written = offsets.persist()
        finally:
            lock.release()
        self._published = dict(places)
        return written

    def _refusal(self, why: str) -> StoreLocked:
        return StoreLocked(
            f"the offsets of group {self._group} can't be published: {why}",
            file=self._place.root,
            hint="stop the broker or writer, or leave commitGroup out: whoever has the store open keeps the"
            " offsets in memory and would write over them",
        )
