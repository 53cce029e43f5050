"""What a store does before it may be written to: find the end of the log, and make everything else agree
with it.

The log decides. Queues and index are believed as far as their recorded position (``penstock.position``) says
they were synced, and are dispatched again from there. Times decide nothing but which of two records that
claim one place in a queue is the older one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock._native import dispatch as native
from penstock._native.units import first_nonzero
from penstock.errors import CorruptFile, StoreError
from penstock.files.mappedfile import MappedFile
from penstock.store import position as positions
from penstock.store.checkpoint import StoreCheckpoint
from penstock.store.commitlog import CommitLog
from penstock.store.damage import Damage, DamagedLog
from penstock.store.dispatcher import Dispatcher
from penstock.store.indexservice import IndexService
from penstock.store.queuetable import QueueTable

PIECE = 4 << 20
TAKEN = "its place in the queue belongs to another record"


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did. ``str()`` says it in a few lines."""

    clean: bool = True
    start_offset: int = 0
    end_offset: int = 0
    records: int = 0
    cut_bytes: int = 0
    cut_reason: str = ""
    units_dropped: int = 0
    blanks_filled: int = 0
    index: str = "kept"
    damage: list[Damage] = field(default_factory=list)
    faults: list[StoreError] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"last exit {'clean' if self.clean else 'abnormal'}; log checked from {self.start_offset} to"
            f" {self.end_offset}, {self.records} records; index {self.index}"
        ]
        if self.cut_bytes:
            lines.append(f"cut {self.cut_bytes} bytes behind {self.end_offset}: {self.cut_reason}")
        if self.units_dropped:
            lines.append(f"dropped {self.units_dropped} queue units of records that are not there")
        if self.blanks_filled:
            lines.append(f"{self.blanks_filled} queue offsets have no record any more")
        lines += [
            f"damaged: {d.end - d.offset} bytes at {d.offset} ({d.reason}), the log goes on behind"
            for d in self.damage
        ]
        lines += [f"fault: {fault}" for fault in self.faults]
        return "\n".join(lines)


class Recovery:
    """One run over one store, before any of its threads start."""

    def __init__(
        self,
        root: str,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        dispatcher: Dispatcher,
        *,
        clean: bool,
    ) -> None:
        self.root = root
        self.commit_log = commit_log
        self.queues = queues
        self.index = index
        self.checkpoint = checkpoint
        self.dispatcher = dispatcher
        self.native = dispatcher.native
        self.storage = commit_log.storage
        self.report = RecoveryReport(clean=clean)
        self._damage = DamagedLog(root, commit_log, queues, self.report.faults.append)
        self._ours = False
        """The log is as we left it: RocketMQ, which leaves old bytes behind the end, has not cut it since."""
        self._reached = 0
        """The log went this far once, as the queues or the position say: zeros before it are damage."""

    def run(self, *, rebuild: bool = False) -> RecoveryReport:
        """Recover; ``rebuild`` makes queues and index anew from the whole log."""
        report, log = self.report, self.commit_log
        report.faults += log.load()
        report.faults += self.queues.load()
        self.checkpoint.load()
        recorded = None if rebuild else positions.load(self.storage, self.root)
        unread = self.index.load() if self.index is not None else []
        self.dispatcher.add_queues()
        if not log.files.files:
            return self._without_log()
        start = self._start(recorded, unread, rebuild)
        report.start_offset = start
        self.dispatcher.use_index(make=False)
        end = self._walk(start)
        self._finish(end, start)
        return report

    # -- where to start ----------------------------------------------------------------------------

    def _without_log(self) -> RecoveryReport:
        """No log: whatever queues and index hold points nowhere."""
        for queue in self.queues:
            self.report.units_dropped += queue.max_offset - queue.min_offset
            queue.destroy()
        if self.index is not None:
            self.index.clear()
            self.native.index_from = 0
        self.native.seek(0)
        self.commit_log.open_end(0)
        self.queues.start_offsets()
        return self.report

    def _start(self, recorded: positions.Position | None, unread: list[str], rebuild: bool) -> int:
        """Decide what is believed; cut the rest; the offset from which the log is read."""
        log_min = self.commit_log.min_offset
        known = self.queues.max_physical_offset
        if rebuild or (recorded is not None and not self._goes_with(recorded, known)):
            recorded = None
        self._reached = max(known, recorded.flushed if recorded is not None else 0)
        self._ours = recorded is not None
        if recorded is not None:
            # Until something is dispatched it stays the last one: the next position has to name it too.
            self.native.last_offset = recorded.last_record
        if rebuild or (recorded is None and not self.report.clean):
            # Nothing says how far queues and index are whole: make them again from the log. Units of records
            # that
            # were deleted from its head stay, they carry the queue's numbers.
            self.report.units_dropped = self.queues.truncate_dirty(log_min) if known > log_min else 0
            self._rebuild_index(log_min)
            return log_min
        if recorded is not None and not self.report.clean:
            start = max(
                log_min, min(recorded.queues, recorded.index.log_offset if self.index else recorded.queues)
            )
            self.report.units_dropped = self.queues.truncate_dirty(max(recorded.queues, log_min))
            if self.index is not None:
                try:
                    self.index.cut(recorded.index, unread)
                    self.report.index = f"cut to {recorded.index.count - 1} synced entries and continued"
                    self.native.index_from = recorded.index.log_offset
                except StoreError as error:
                    self.report.faults.append(error)
                    self._rebuild_index(log_min)
                    start = log_min
            return start if self._units_agree(recorded) else log_min
        if recorded is not None and recorded.clean_end >= 0:
            self.native.index_from = recorded.clean_end
            start = recorded.clean_end if self._units_agree(recorded) else log_min
            if self.index is not None and (unread or self.index.entries != recorded.index.entries):
                found = f"it has {self.index.entries} entries, {recorded.index.entries} were recorded"
                self.report.faults.append(
                    CorruptFile(
                        unread[0] if unread else self.index.folder,
                        found=found,
                        hint="it is rebuilt from the log",
                    )
                )
                self._rebuild_index(log_min)
                return log_min
            return start
        return self._start_of_foreign(log_min, known, unread)

    def _units_agree(self, recorded: positions.Position) -> bool:
        """Whether the queues still hold what they did when the position was recorded.

        If not, the whole log is dispatched again: queues that have a record's unit take no second one.
        """
        if self.queues.units == recorded.units:
            return True
        self.report.faults.append(
            StoreError(
                f"the queues hold {self.queues.units} units, {recorded.units} were recorded:"
                " what is missing comes from the log",
                file=self.root,
            )
        )
        return False

    def _goes_with(self, recorded: positions.Position, known: int) -> bool:
        """Whether a recorded position belongs to this log: RocketMQ may have written the store since, or
        cut it.
        """
        log = self.commit_log
        end = log.files.files[-1].end_offset
        if recorded.clean_end >= 0 and self.report.clean:
            if known > recorded.clean_end or recorded.clean_end > end:
                return False
            if recorded.last_record < max(0, log.min_offset):
                return recorded.clean_end <= max(0, log.min_offset) or self._is_file_start(recorded.clean_end)
            header = self._damage.header_at(recorded.last_record)
            return header is not None and recorded.last_record + header[0] == recorded.clean_end
        if recorded.queues > end:
            return False
        start = min(recorded.queues, recorded.index.log_offset)
        return (
            start <= log.min_offset
            or self._is_file_start(start)
            or self._looks_like_boundary(start, recorded)
        )

    def _looks_like_boundary(self, offset: int, recorded: positions.Position) -> bool:
        """The last record before a recorded position must end there; without one, a record or nothing must
        follow.
        """
        if recorded.last_record >= max(0, self.commit_log.min_offset):
            header = self._damage.header_at(recorded.last_record)
            return header is not None and recorded.last_record + header[0] in (
                recorded.queues,
                recorded.index.log_offset,
            )
        return True

    def _is_file_start(self, offset: int) -> bool:
        return any(file.file_from_offset == offset for file in self.commit_log.files.files)

    def _start_of_foreign(self, log_min: int, known: int, unread: list[str]) -> int:
        """A cleanly closed store of RocketMQ's: its queues and index are believed (section 12.2)."""
        index = self.index
        if index is not None:
            if unread or not index.files:
                self._rebuild_index(log_min)
                return log_min
            self.native.index_from = index.last_update[1] + 1
        start = log_min
        if self.queues.incomplete:
            return start
        for file in self.commit_log.files.files:
            header = self._damage.header_at(file.file_from_offset)
            if header is not None and file.file_from_offset <= known:
                start = file.file_from_offset
        return start

    def _rebuild_index(self, log_min: int) -> None:
        if self.index is not None:
            self.index.clear()
            self.native.index_from = log_min
            self.report.index = "rebuilt from the log"

    # -- walking the log ---------------------------------------------------------------------------

    def _walk(self, start: int) -> int:
        """Check and dispatch from ``start`` to the end of the log, which is returned."""
        self.native.seek(start)
        before = self.native.records
        files = self.commit_log.files.files
        while True:
            position = self.native.position
            file = self.commit_log.files.find_mapped_file_by_offset(position)
            if file is None:
                later = [f for f in files if f.file_from_offset > position]
                if not later or self._damage.header_at(later[0].file_from_offset) is None:
                    break
                self._note_gap(position, later[0].file_from_offset)
                self.native.seek(later[0].file_from_offset)
                continue
            if not self._walk_file(file):
                break
        self._settle()
        self.report.records = self.native.records - before
        self.report.blanks_filled = self.dispatcher.gaps_filled
        return self.native.position

    def _walk_file(self, file: MappedFile) -> bool:
        """Dispatch the rest of one file. True to go on with the next, False where the log ends."""
        piece, base, data = PIECE, 0, b""
        while True:
            position = self.native.position
            if position >= file.end_offset:
                return True
            at = position - file.file_from_offset
            if not base <= position < base + len(data):
                base, data = position, self.storage.pread(file.path, at, min(piece, file.file_size - at))
            code = self._run(base, data)
            reached = self.native.position - base
            if code == native.DONE:
                continue
            if code == native.BLANK:
                blank = int.from_bytes(data[reached : reached + 4], "big")
                if blank != file.end_offset - self.native.position:
                    return self._damaged(file, "a blank of the wrong length")
                if not any(f.file_from_offset >= file.end_offset for f in self.commit_log.files.files):
                    self.report.cut_reason = "a blank with no file after it"
                    return False
                self.native.seek(file.end_offset)
                return True
            if code != native.BAD_RECORD:
                self.dispatcher.help(code, memoryview(data)[reached:], file.path)
                continue
            reason = self.native.bad_reason
            if reason == "short" and base + len(data) < file.end_offset:
                # The record goes on behind this piece: read from its start, more if it is larger than one.
                piece = PIECE if reached else max(piece, min(self.native.record_size, file.file_size))
                data = b""
                continue
            piece, data = PIECE, b""
            if not self._damaged(file, reason):
                return False

    def _run(self, base: int, data: bytes) -> int:
        """Dispatch what is whole in a piece of the log, from the position on."""
        config = self.commit_log.config
        return self.native.run(
            data,
            base,
            base + len(data),
            True,
            False,
            config.check_crc_on_recover,
            config.force_verify_prop_crc,
        )

    def _damaged(self, file: MappedFile, reason: str) -> bool:
        """Decide what a bad record means: the end of the log (False), or damage inside of it that is
        contained.
        """
        position = self.native.position
        size = self.native.record_size
        known = max(self._reached, self.queues.max_physical_offset)
        certain = position < known
        if reason == "stale":
            self._settle()  # the unit that has its place may not be written yet
            if not self._damage.is_leftover(file, position, size):
                return True
            certain = certain or self._damage.is_displaced(file, position, size)
            if not certain and not self._ours:
                self.report.cut_reason = "a leftover of an earlier log"
                return False
            # Of two records that claim a place one is damaged.
            reason = TAKEN
        if reason == "zero" and known <= position:
            return False
        behind = position + size
        if reason == TAKEN and certain:
            # It is whole, even as the last of all: nothing but its own place in the queue is lost.
            damage = Damage(position, behind, reason)
            self.native.last_offset = position
        else:
            found = self._damage.next_record(
                file, position + 1, known if reason == "zero" else file.end_offset
            )
            if found is None:
                self.report.cut_reason = f"no whole record there ({reason}) and none behind it"
                return False
            if reason in ("crc", "torn", TAKEN) and self._damage.goes_on_at(file, behind):
                # Its length is right: it can be stepped over as it is.
                damage = Damage(position, behind, reason)
            else:
                damage = self._damage.contain(file, position, found, reason)
        self.report.damage.append(damage)
        self.native.seek(damage.end)
        return True

    def _note_gap(self, begin: int, end: int) -> None:
        self.report.damage.append(Damage(begin, end, "the file is missing"))

    def _settle(self) -> None:
        """Write the units and entries that are still staged."""
        while (code := self.native.run(b"", self.native.position, 0)) != native.DONE:
            self.dispatcher.help(code, memoryview(b""), self.root)

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self, end: int, start: int) -> None:
        """The log ends at ``end``: cut what is behind it everywhere, and have all of it on disk."""
        log, report = self.commit_log, self.report
        report.end_offset = end
        report.units_dropped += self.queues.truncate_dirty(end)
        if self.index is not None:
            self.native.use_index(None)
            self.index.cut_behind(end)
            self.dispatcher.use_index(make=False)
            self.native.index_from = min(self.native.index_from, end)
        self._cut_log(end)
        for file in log.files.files:
            if file.end_offset > start:
                file.mapping.sync()
        log.open_end(end)
        self.queues.correct_min_offsets(log.min_offset)
        self.queues.start_offsets()
        if self.native.last_offset >= 0 and report.records:
            self.checkpoint.confirm_phy_offset = self.native.last_offset

    def _cut_log(self, end: int) -> None:
        """Positions stand at ``end``; bytes behind it that are not zero are kept aside and erased."""
        files = self.commit_log.files
        leftovers = 0
        for file in files.files:
            if file.end_offset <= end:
                continue
            begin = max(end, file.file_from_offset)
            last = self._last_nonzero(file, begin)
            if last is not None:
                leftovers += last - begin
                self._damage.keep(file, begin, last)
        if leftovers:
            self.report.cut_bytes = leftovers
            files.truncate_dirty_files(end)
            return
        # Nothing to erase: only the positions move, and files that hold nothing go.
        while (
            (last_file := files.last_file) is not None
            and last_file.file_from_offset > end
            and len(files.files) > 1
        ):
            files.delete_last_mapped_file()
        last_file = files.last_file
        if last_file is not None:
            place = min(end - last_file.file_from_offset, last_file.file_size)
            last_file.wrote_position = last_file.committed_position = last_file.flushed_position = max(
                0, place
            )

    def _last_nonzero(self, file: MappedFile, begin: int) -> int | None:
        """End of the bytes behind ``begin`` that are not zero, None if all are. Holes are not read."""
        last = None
        for low, high in file.mapping.data_extents(begin - file.file_from_offset):
            at = low
            while at < high:
                data = self.storage.pread(file.path, at, min(PIECE, high - at))
                if not data:
                    break
                if first_nonzero(data) >= 0:
                    last = file.file_from_offset + at + len(data.rstrip(b"\0"))
                at += len(data)
        return last
