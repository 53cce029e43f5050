"""Old files go: by age at a fixed hour, by how full the disk is, by force (format section 13)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.config import StoreConfig
from penstock.store.commitlog import CommitLog
from penstock.store.dispatcher import Dispatcher
from penstock.store.indexservice import IndexService
from penstock.store.queuetable import QueueTable

log = logging.getLogger("penstock.store")

MANUAL_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class DiskState:
    """What the fill of the disk asks for. ``used`` is 0..1, -1 when it cannot be told."""

    used: float
    full: bool
    clean_at_once: bool
    clean: bool


def disk_state(used: float, config: StoreConfig) -> DiskState:
    """Section 13.3: above the warning level nothing may be written, above the next files go whatever their
    age.

    A ratio that cannot be told (-1 in some containers) is no reason to delete anything.
    """
    warning = min(0.90, max(0.35, config.disk_space_warning_level_ratio / 100))
    most = min(95, max(10, config.disk_max_used_space_ratio)) / 100
    return DiskState(used, used > warning, used > forcible_ratio(config), used > most)


def forcible_ratio(config: StoreConfig) -> float:
    """Above it files go whatever their age, and a folder gets no new ones while another has room."""
    return min(0.85, max(0.30, config.disk_space_clean_forcibly_ratio / 100))


class CleanService:
    """One ``run`` looks at the disk and the clock, and removes what is due. Blocks: never on a writer's
    thread.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexService | None,
        dispatcher: Dispatcher,
        config: StoreConfig,
        clock: Clock,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._config = config
        self._clock = clock
        self._manual = 0
        self._cleaned_to = 0
        self._gaps: set[str] = set()
        self.disk = DiskState(-1.0, False, False, False)
        self.on_disk: Callable[[bool, float], object] = lambda full, used: None
        """Told at every look whether the disk is too full to write, and how full it is."""

    def execute_delete_files_manually(self) -> None:
        """Clean in the next rounds, whatever the hour."""
        self._manual = MANUAL_ROUNDS

    def look_at_disk(self) -> DiskState:
        """How full the disks are now. Asked between deletions too: slow ones must not hide free space.

        Of the folders of the log the emptiest counts, for new files can go there; then the disk of the
        queues, if it is fuller.
        """
        usage = self._log.storage.disk_usage
        folders = {folder: usage(folder) for folder in self._log.folders.writable}
        self._log.full_folders = frozenset(
            folder for folder, used in folders.items() if used > forcible_ratio(self._config)
        )
        known = [used for used in folders.values() if used >= 0]
        self.disk = disk_state(max(min(known, default=-1.0), usage(self._queues.simple_folder)), self._config)
        self.on_disk(self.disk.full, self.disk.used)
        return self.disk

    def _between_deletions(self) -> None:
        self.look_at_disk()
        time.sleep(self._config.delete_commit_log_files_interval_ms / 1000)

    def run(self) -> int:
        """Remove log files that are due, then what queues and index still hold of them; log files removed."""
        disk = self.look_at_disk()
        hour = time.localtime(self._clock.now_ms() / 1000).tm_hour
        count = 0
        self._look_for_gaps()
        if hour in self._config.delete_hours or disk.clean or disk.clean_at_once or self._manual:
            self._manual = max(0, self._manual - 1)
            count = self._log.files.delete_expired_file_by_time(
                self._config.file_reserved_time_hours * 3_600_000,
                clean_immediately=disk.clean_at_once and self._config.clean_file_forcibly_enable,
                batch_max=self._config.delete_file_batch_max,
                pause=self._between_deletions,
            )
        self._log.files.retry_delete_first_file()
        self.clean_queues()
        return count

    def _look_for_gaps(self) -> None:
        """Say it, once, when a file of the log is missing between two others: somebody removed it."""
        gaps = {str(fault) for fault in self._log.files.check_self()}
        for gap in sorted(gaps - self._gaps):
            log.error("the log has a gap: %s", gap)
        self._gaps = gaps

    def clean_queues(self) -> int:
        """Remove queue and index files that point only at deleted log files; queue files removed."""
        minimum = self._log.min_offset
        if minimum <= self._cleaned_to:
            return 0
        with self._dispatcher.standing():
            count = self._queues.delete_expired(minimum)
            if self._index is not None:
                self._index.delete_expired(minimum)
        self._cleaned_to = minimum
        log.info("the log begins at %d now; %d queue files removed", minimum, count)
        return count
