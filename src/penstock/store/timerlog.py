"""The folder ``timerlog``: one unit per message in the wheel (store format, section 15.5).

Files of equal size named by their first offset; a blank closes each. They are sparse and written by position
like queue files: a store that uses one timer must not pay 100 MiB for it.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock._native.timerjoin import BROKEN, FORWARDS, follow_chain
from penstock.errors import CorruptFile, FlushFailed
from penstock.files.storage import SparseFile, Storage
from penstock.format.timerunit import (
    TIMER_BLANK_SIZE,
    TIMER_UNIT_SIZE,
    TimerUnit,
    decode_timer_unit,
    encode_timer_blank,
)

_RAW_UNIT = struct.Struct(">iqIqiqiiq")
_UNITS_PER_READ = 16_384

RawUnit = tuple[int, int, int, int, int, int, int, int, int]
"""Unit size, previous, magic, write time, delay, physical offset, size, topic hash, reserved."""


def make_durable(file: SparseFile) -> None:
    """Sync a file; FlushFailed when the disk refuses. A second try could succeed without the data."""
    try:
        file.sync()
    except OSError as error:
        raise FlushFailed(f"sync failed: {error.strerror or error}", file=file.path) from error


class ScannedUnit(NamedTuple):
    """A unit as a scan gives it: where it is, when it fires, what it stands for."""

    position: int
    previous: int
    magic: int
    fires_at: int
    physical_offset: int
    size: int


class Chain(NamedTuple):
    """What a slot leads to, newest first: positions of units, those that delete others apart.

    ``fault`` says why it is shorter than it was; ``broken`` when a unit is lost by it.
    """

    units: array[int]
    deletes: array[int]
    fault: str | None = None
    broken: bool = False


class TimerLog:
    """Appends and reads units by their absolute position. One thread appends.

    After ``load`` the end is not known: ``truncate`` sets it, to what a scan found good.
    """

    def __init__(self, storage: Storage, path: str, file_size: int) -> None:
        self._storage = storage
        self.path = path
        self.file_size = file_size
        self._files: dict[int, SparseFile] = {}
        self._views: dict[int, memoryview] = {}
        self._dirty: set[int] = set()
        self.end_position = 0
        self.flushed_position = 0

    @property
    def begin_position(self) -> int:
        """Position of the first unit that is still there, or the end when there is none."""
        return min(self._files, default=self.end_position)

    @property
    def units_per_file(self) -> int:
        return (self.file_size - TIMER_BLANK_SIZE) // TIMER_UNIT_SIZE

    def load(self) -> None:
        """Open the files of an earlier run; their size replaces the configured one.

        CorruptFile for a name or a size that does not belong; an empty last file is dropped.
        """
        entries = self._storage.listdir(self.path) if self._storage.exists(self.path) else []
        names = [entry for entry in entries if not entry.is_dir]
        if names and names[-1].size == 0:
            self._storage.unlink(f"{self.path}/{names.pop().name}")
        if names and names[0].size >= TIMER_UNIT_SIZE + TIMER_BLANK_SIZE:
            self.file_size = names[0].size
        for entry in names:
            file = f"{self.path}/{entry.name}"
            if entry.size != self.file_size:
                raise CorruptFile(file, found=f"{entry.size} bytes instead of {self.file_size}")
            if not entry.name.isdecimal() or int(entry.name) % self.file_size:
                raise CorruptFile(file, found="a name that is no offset of a timer log file")
            self._files[int(entry.name)] = self._storage.open_sparse(file, self.file_size)
        starts = sorted(self._files)
        for before, start in itertools.pairwise(starts):
            if start != before + self.file_size:
                raise CorruptFile(f"{self.path}/{start:020d}", found=f"a gap behind the file of {before}")
        self.end_position = self.flushed_position = starts[-1] + self.file_size if starts else 0

    def room(self) -> int:
        """How many units fit behind the end, at least one: a full file is closed for it.

        After an error the same call may be made again.
        """
        inside = self.end_position % self.file_size
        if inside + TIMER_UNIT_SIZE + TIMER_BLANK_SIZE > self.file_size:
            start = self.end_position - inside
            self._files[start].write(inside, encode_timer_blank(self.file_size - inside))
            # Durable before the next file has a name: only the last file may be unfinished after a crash.
            make_durable(self._files[start])
            self._dirty.discard(start)
            self.end_position, inside = start + self.file_size, 0
        return self.units_per_file - inside // TIMER_UNIT_SIZE

    def append(self, units: bytes) -> None:
        """Write units at the end, as many as there was ``room`` for. After an error nothing was appended."""
        inside = self.end_position % self.file_size
        self._file_at(self.end_position).write(inside, units)
        self._dirty.add(self.end_position - inside)
        self.end_position += len(units)

    def read(self, position: int) -> TimerUnit | None:
        """The unit at a position, or None when there is none: outside the log, between units, or a blank."""
        inside = position % self.file_size
        file = self._files.get(position - inside)
        if file is None or position + TIMER_UNIT_SIZE > self.end_position or inside % TIMER_UNIT_SIZE:
            return None
        data = file.read(inside, TIMER_UNIT_SIZE)
        if len(data) < TIMER_UNIT_SIZE:
            return None
        unit = decode_timer_unit(data)
        return unit if unit.is_plausible else None

    def read_many(self, positions: Iterable[int]) -> Iterator[RawUnit]:
        """The fields of units that a chain led to, as they are stored."""
        size, views = self.file_size, self._views
        pieces = []
        for position in positions:
            inside = position % size
            view = views.get(position - inside) or self._view(position - inside)
            pieces.append(view[inside : inside + TIMER_UNIT_SIZE])
        return _RAW_UNIT.iter_unpack(b"".join(pieces))

    def chain(self, position: int, tick: int, precision: int) -> Chain:
        """The units of a slot from its newest on. Where a chain does not lead on as chains do, it ends."""
        found = Chain(array("q"), array("q"))
        while position >= 0:
            start = position - position % self.file_size
            if start not in self._files:
                return found._replace(fault=f"it breaks off at {position}", broken=True)
            units, deletes, position, how = follow_chain(
                self._view(start), start, self.end_position, position, tick, precision
            )
            found.units.extend(units)
            found.deletes.extend(deletes)
            if how == BROKEN:
                return found._replace(fault=f"it breaks off at {position}", broken=True)
            if how == FORWARDS:
                return found._replace(fault=f"unit {position} leads forwards")
        return found

    def scan(self, begin: int) -> Iterator[ScannedUnit]:
        """Units from a position on, through blanks, up to the first bytes that are no unit."""
        position = max(begin, self.begin_position)
        while True:
            inside = position % self.file_size
            file = self._files.get(position - inside)
            room = self.units_per_file - inside // TIMER_UNIT_SIZE
            if file is None:
                return
            if room <= 0:
                position += self.file_size - inside
                continue
            data = file.read(inside, min(room, _UNITS_PER_READ) * TIMER_UNIT_SIZE)
            for fields in _RAW_UNIT.iter_unpack(data):
                unit_size, previous, magic, write_time, delay, physical_offset, size, _, _ = fields
                good = unit_size == TIMER_UNIT_SIZE and 0 < magic <= 0xF and size > 0
                if not good or physical_offset < 0 or not -1 <= previous < position:
                    return
                yield ScannedUnit(position, previous, magic, write_time + delay, physical_offset, size)
                position += TIMER_UNIT_SIZE

    def last_before(self, position: int) -> int | None:
        """Position of the unit that ends at ``position`` or lies before the blank there; None at the head."""
        inside = position % self.file_size
        if inside == 0:
            position -= self.file_size
            inside = self.units_per_file * TIMER_UNIT_SIZE
        found = position - position % self.file_size + inside - TIMER_UNIT_SIZE
        return found if found >= 0 and found - found % self.file_size in self._files else None

    def truncate(self, position: int) -> None:
        """The log ends here. What lies behind is zeroed: it must not come back after the next crash."""
        inside = position % self.file_size
        for start in sorted(self._files, reverse=True):
            if start >= position and start > self.begin_position:
                self._remove(start)
        file = self._files.get(position - inside)
        if file is not None and self._is_stained(file, inside):
            file.zero(inside, self.file_size)
            make_durable(file)
        self._close_earlier_files()
        self._dirty.clear()
        self.end_position = self.flushed_position = position

    def flush(self) -> bool:
        """Make every unit durable; False when there was nothing to do."""
        end = self.end_position
        for start in sorted(self._dirty):
            make_durable(self._files[start])
            self._dirty.discard(start)
        advanced = end != self.flushed_position
        self.flushed_position = end
        return advanced

    def delete_before(self, physical_offset: int) -> int:
        """Delete files whose messages the commit log no longer has; how many. The last file stays."""
        deleted = 0
        for start in sorted(self._files)[:-1]:
            unit = self.read(start + (self.units_per_file - 1) * TIMER_UNIT_SIZE)
            if unit is None or unit.physical_offset >= physical_offset:
                break
            self._dirty.discard(start)
            self._remove(start)
            deleted += 1
        return deleted

    def close(self) -> None:
        """Let go of the files. What was not flushed may or may not be there after a crash."""
        self._views.clear()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _view(self, start: int) -> memoryview:
        """A file as it is mapped, for those who follow chains: they lead all over it."""
        view = self._views.get(start)
        if view is None:
            view = self._views[start] = memoryview(self._files[start].map())
        return view

    def _remove(self, start: int) -> None:
        self._views.pop(start, None)
        self._files.pop(start).close()
        self._storage.unlink(f"{self.path}/{start:020d}")

    def _file_at(self, position: int) -> SparseFile:
        start = position - position % self.file_size
        file = self._files.get(start)
        if file is None:
            self._storage.makedirs(self.path)
            file = self._storage.open_sparse(f"{self.path}/{start:020d}", self.file_size, create=True)
            self._files[start] = file
        return file

    def _close_earlier_files(self) -> None:
        """Write the blanks a crash lost. A scan here does without them, RocketMQ's would end there."""
        inside = self.units_per_file * TIMER_UNIT_SIZE
        blank = encode_timer_blank(self.file_size - inside)
        for start in sorted(self._files)[:-1]:
            if self._files[start].read(inside, TIMER_BLANK_SIZE) != blank:
                self._files[start].write(inside, blank)
                make_durable(self._files[start])

    def _is_stained(self, file: SparseFile, inside: int) -> bool:
        """Whether a file has bytes behind a position."""
        nothing = bytes(1 << 20)
        for at in range(inside, self.file_size, len(nothing)):
            data = file.read(at, len(nothing))
            if data != nothing[: len(data)]:
                return True
        return False
