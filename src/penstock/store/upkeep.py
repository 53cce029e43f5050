"""What a running store does beside putting: positions to disk, checkpoint, cleaning, offsets of groups."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import StoreError
from penstock.store import position as positions
from penstock.store.checkpoint import StoreCheckpoint
from penstock.store.cleaning import CleanService
from penstock.store.commitlog import CommitLog
from penstock.store.consumeroffset import ConsumerOffsets
from penstock.store.dispatcher import Dispatcher
from penstock.store.flushmanager import PeriodicService
from penstock.store.indexservice import IndexService
from penstock.store.queuetable import QueueTable
from penstock.store.topictable import TopicTable

log = logging.getLogger("penstock.store")

SYNC_BYTES = 512 << 20
"""So much may be dispatched before queues and index are synced again: it bounds what the next recovery has
to redo.
"""


@dataclass(slots=True)
class Parts:
    """The parts of an open store that upkeep looks after."""

    root: str
    commit_log: CommitLog
    queues: QueueTable
    index: IndexService | None
    checkpoint: StoreCheckpoint
    dispatcher: Dispatcher
    consumer_offsets: ConsumerOffsets
    clean: CleanService
    topics: TopicTable


class Upkeep:
    """One thread for all of it. Every step can be called by hand; none is called by a writer."""

    def __init__(
        self,
        parts: Parts,
        on_disk: Callable[[bool, float], object],
        on_sync_failure: Callable[[OSError], object],
    ) -> None:
        config = parts.commit_log.config
        self.parts = parts
        parts.clean.on_disk = on_disk
        self._on_sync_failure = on_sync_failure
        self._sync_error: OSError | None = None
        self._synced_position = -1
        self._last_sync = self._now()
        self._last_clean = self._now()
        self._last_offsets = self._now()
        self._thorough_ms = config.flush_consume_queue_thorough_interval_ms
        self._clean_ms = config.clean_resource_interval_ms
        self._offsets_ms = config.flush_consumer_offset_interval_ms
        self._thread = PeriodicService("Upkeep", config.flush_interval_consume_queue_ms, self.run_once)

    def _now(self) -> int:
        return int(self.parts.commit_log.clock.monotonic() * 1000)

    def start(self) -> None:
        self._thread.start()

    def shutdown(self) -> None:
        self._thread.shutdown()

    def run_once(self) -> None:
        """Do what is due."""
        now, parts = self._now(), self.parts
        self._guarded(parts.clean.look_at_disk)
        moved = parts.dispatcher.position - self._synced_position
        if moved and (moved >= SYNC_BYTES or now >= self._last_sync + self._thorough_ms):
            self._guarded(self.sync_positions)
        if now >= self._last_clean + self._clean_ms:
            self._last_clean = now
            self._guarded(self.clean)
        if now >= self._last_offsets + self._offsets_ms:
            self._last_offsets = now
            self._guarded(parts.consumer_offsets.persist)

    def clean(self) -> int:
        """Remove what is due, and record where the rest stands; how many log files went."""
        count = self.parts.clean.run()
        if count:
            self.sync_positions()
        return count

    def _guarded(self, work: Callable[[], object]) -> None:
        """A full disk must not end upkeep: cleaning is what makes room."""
        try:
            work()
        except (OSError, StoreError) as error:
            log.error("upkeep: %s", error)

    def sync_positions(self, *, clean_end: int = -1) -> None:
        """Log, queues and index are on disk up to the dispatcher's position, and that position is recorded.

        In this order: a recorded position never says more than the files hold. A sync that failed is final
        here too: the next may succeed although pages are gone.
        """
        if self._sync_error is not None:
            raise self._sync_error
        parts = self.parts
        dispatcher = parts.dispatcher
        with dispatcher.standing():
            position = dispatcher.position
            last_record = dispatcher.native.last_offset
            last_timestamp = dispatcher.native.last_timestamp
            units = parts.queues.units
            index = (
                parts.index.position(position)
                if parts.index is not None
                else positions.IndexPosition("", 1, 0, 0, position, entries=-1)
            )
        try:
            if parts.commit_log.flushed_where < position:
                parts.commit_log.flush()
            parts.queues.flush()
            if parts.index is not None:
                parts.index.flush()
        except OSError as error:
            self._sync_error = error
            self._on_sync_failure(error)
            raise
        recorded = positions.Position(
            parts.commit_log.min_offset,
            parts.commit_log.flushed_where,
            position,
            clean_end,
            index,
            last_record,
            units,
        )
        positions.save(parts.commit_log.storage, parts.root, recorded)
        self._synced_position = position
        self._last_sync = self._now()
        checkpoint = parts.checkpoint
        if last_record >= 0 and last_timestamp > 0:
            checkpoint.logics_msg_timestamp = last_timestamp
            checkpoint.logics_physical_offset = last_record
            checkpoint.physic_msg_timestamp = max(checkpoint.physic_msg_timestamp, last_timestamp)
        if parts.index is not None:
            checkpoint.index_msg_timestamp = max(
                checkpoint.index_msg_timestamp, parts.index.completed_timestamp
            )
        checkpoint.flush()
