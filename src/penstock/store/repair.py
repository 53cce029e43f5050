"""Make a damaged store directory whole again, and keep what is taken out.

First the files: sizes, foreign files, a missing piece of the log. Then damage inside the log is covered with
records that nobody sees, so that RocketMQ steps over it too. Recovery does the rest, over the whole log: it
cuts a damaged tail and builds queues and index anew. Bytes that go are copied to ``penstock.damaged`` before.
"""

from __future__ import annotations

import errno
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from penstock.config import StoreConfig
from penstock.files.storage import Storage
from penstock.store.damage import DAMAGED
from penstock.store.damagedpart import Damage
from penstock.store.directory import StoreDirectory
from penstock.store.fault import Fault
from penstock.store.filler import filler_record
from penstock.store.foreign import foreign_files
from penstock.store.opening import open_writable
from penstock.store.sizes import QueueFile, log_files_of
from penstock.store.verify import Verifier, VerifyReport, verify_store

_BLANK = struct.Struct(">iI")
_BLANK_MAGIC = 0xCBD43194
UNIT = 20
_PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
_KEEP_LIMIT = 64 << 20
# Damage in these is mended by building them anew; everything else needs the log to be touched.
_REBUILT = frozenset(
    ("unit", "ext-unit", "queue-offset", "queue-gap", "missing-units", "index", "index-file")
)

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class RepairReport:
    """What was wrong, what was done (or would be), and how the store is now."""

    path: str
    dry_run: bool
    before: VerifyReport
    after: VerifyReport | None = None
    actions: list[str] = field(default_factory=list)
    recovery: str = ""

    @property
    def healthy(self) -> bool:
        return self.before.healthy if self.after is None else self.after.healthy

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "path": self.path,
            "dry_run": self.dry_run,
            "healthy": self.healthy,
            "actions": self.actions,
            "recovery": self.recovery,
            "before": self.before.as_dict(),
            "after": None if self.after is None else self.after.as_dict(),
        }


def repair_store(
    path: str,
    *,
    storage: Storage | None = None,
    config: StoreConfig | None = None,
    dry_run: bool = False,
    progress: Progress = lambda done, whole: None,
) -> RepairReport:
    """Verify, mend what is wrong, verify again. Raises StoreLocked when somebody uses the store.

    Nothing is changed in a healthy store that was closed, nor with ``dry_run``.
    """
    directory = StoreDirectory(storage, path, config)
    verifier = Verifier(directory, progress)
    before = verifier.run()
    report = RepairReport(path, dry_run, before)
    if before.healthy:
        return report
    mend = _Mend(directory, report, dry_run)
    if dry_run:
        mend.files()
        mend.contain(verifier.scanner.damage)
        mend.blank_units(before.faults)
        mend.foretell()
        return report
    lock = directory.storage.lock(directory.path("lock"))
    try:
        mend.files()
        mend.contain(verifier.scanner.damage)
        mend.blank_units(before.faults)
    finally:
        lock.release()
    # Without threads: nothing is delivered, cleaned or scheduled by the way.
    with open_writable(
        path, storage=storage, config=directory.config, rebuild=True, create=False, background=False
    ) as store:
        report.recovery = str(store.report)
        report.actions += [line for line in report.recovery.splitlines() if line]
    report.after = verify_store(path, storage=storage, config=config, progress=progress)
    return report


class _Mend:
    """Changes of files that recovery does not make: it expects them to be of the right size and place."""

    def __init__(self, directory: StoreDirectory, report: RepairReport, dry_run: bool) -> None:
        self.directory = directory
        self.storage = directory.storage
        self.report = report
        self.dry_run = dry_run

    def files(self) -> None:
        """Make every file one that a store can open."""
        for path, _ in list(foreign_files(self.directory)):
            self._move_away(path, "move away the foreign file")
        log = [PurePath(folder) for folder in self.directory.log_folders.all]
        for error in self.directory.size_faults:
            path = error.file or ""
            if PurePath(path).parent in log:
                self._mend_log_file(path)
            else:
                self._move_away(path, "move away, to be rebuilt,")
        self._fill_gaps()

    def contain(self, damage: list[Damage]) -> None:
        """Keep the bytes of damaged places inside the log, and put a record over them that nobody sees."""
        for place in damage:
            file = next(
                (f for f in self._log_files() if f.holds(place.begin)),
                None,
            )
            if file is None or place.reason == "missing":
                continue
            end = min(place.end, file.begin + file.size)
            self.report.actions.append(
                f"contain {end - place.begin} damaged bytes of the log at {place.begin}"
            )
            if self.dry_run:
                continue
            at = place.begin - file.begin
            self._keep(file.path, at, end - place.begin, f"{place.begin:020d}")
            made = self.storage.open_sparse(file.path, file.size)
            try:
                if end == file.begin + file.size and end - place.begin >= _BLANK.size:
                    made.write(at, _BLANK.pack(end - place.begin, _BLANK_MAGIC))
                else:
                    filler = filler_record(place.begin, end - place.begin)
                    if filler is None:
                        self.report.actions.append(f"{place.begin} is too short to be contained")
                    else:
                        made.write(at, filler)
                made.sync()
            finally:
                made.close()

    def blank_units(self, faults: list[Fault]) -> None:
        """Units without a record are not rebuilt; inside a queue they must be valid, or it ends there."""
        for fault in faults:
            parts = PurePath(fault.file).parts
            if fault.kind != "unit" or fault.physical_offset is not None or "consumequeue" not in parts:
                continue
            self.report.actions.append(
                f"blank the unit at {fault.offset} of {fault.file}, which has no record"
            )
            if self.dry_run or fault.offset is None:
                continue
            self._keep(fault.file, fault.offset, UNIT, f"{'-'.join(parts[-3:])}.{fault.offset}")
            size = self.storage.stat(fault.file).size
            made = self.storage.open_sparse(fault.file, size)
            try:
                behind = made.read(fault.offset + UNIT, UNIT)
                made.write(fault.offset, _PRE_BLANK if any(behind) else bytes(UNIT))
                made.sync()
            finally:
                made.close()

    def foretell(self) -> None:
        """What recovery would do then."""
        rebuilt = sum(fault.kind in _REBUILT for fault in self.report.before.faults)
        for fault in self.report.before.faults:
            if fault.kind.startswith("record-") and not fault.length:
                self.report.actions.append(f"cut the log at {fault.physical_offset}: {fault.found}")
        self.report.actions.append(f"rebuild queues and index from the log ({rebuilt} faults in them)")

    def _keep(self, path: str, position: int, count: int, name: str) -> None:
        folder = PurePath(self.directory.root) / DAMAGED
        self.storage.makedirs(str(folder))
        self.storage.write_atomic(
            str(folder / name), self.storage.pread(path, position, min(count, _KEEP_LIMIT))
        )

    def _move_away(self, path: str, what: str) -> None:
        place = PurePath(path)
        inside = place.is_relative_to(self.directory.root)
        name = place.relative_to(self.directory.root) if inside else PurePath("commitlog") / place.name
        self.report.actions.append(f"{what} {name}")
        if self.dry_run:
            return
        target = PurePath(self.directory.root) / DAMAGED / name
        self.storage.makedirs(str(target.parent))
        self._move(path, str(target))
        self.storage.sync_dir(str(target.parent))

    def _move(self, path: str, target: str) -> None:
        try:
            self.storage.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # From another disk, where only some of the log's folders are: small as a rule, and foreign.
            self.storage.write_atomic(target, self.storage.read_file(path))
            self.storage.unlink(path)

    def _log_files(self) -> list[QueueFile]:
        return log_files_of(self.storage, self.directory.log_folders)

    def _mend_log_file(self, path: str) -> None:
        """A file of the log gets its size: zeros are added, or the surplus is kept aside."""
        size, wanted = self.storage.stat(path).size, self.directory.segment_size
        name = PurePath(path).name
        if size > wanted:
            self.report.actions.append(f"cut log file {name} from {size} to {wanted} bytes")
            if not self.dry_run:
                self._keep(path, wanted, size - wanted, f"{int(name) + wanted:020d}.surplus")
        else:
            self.report.actions.append(f"lengthen log file {name} from {size} to {wanted} bytes with zeros")
        if not self.dry_run:
            self.storage.truncate(path, wanted)

    def _fill_gaps(self) -> None:
        """A file that is missing inside the log is replaced by one that is a blank: readers step over it."""
        files = [file for file in self._log_files() if file.size]
        size = self.directory.segment_size
        for before, after in itertools.pairwise(files):
            for begin in range(before.begin + size, after.begin, size):
                self.report.actions.append(f"put a blank where log file {begin:020d} is missing")
                if not self.dry_run:
                    path = str(PurePath(before.path).parent / f"{begin:020d}")
                    made = self.storage.open_sparse(path, size, create=True)
                    try:
                        made.write(0, _BLANK.pack(size, _BLANK_MAGIC))
                        made.sync()
                    finally:
                        made.close()
