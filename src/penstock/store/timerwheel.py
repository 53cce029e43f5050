"""The file ``timerwheel``: which timer log units fire when (store format, section 15.4).

The wheel holds twice seven days of slots, one per tick. A slot that holds another round's time is empty.
A working copy lives in memory and is written by ``flush``, page by page: nothing of it is on disk before, so
after a crash the wheel is at most behind the timer log, from which it can always be made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock._native.timerjoin import join_units, set_slots
from penstock.errors import CorruptFile
from penstock.files.storage import SparseFile, Storage
from penstock.format.timerjoin import WHEEL_PAGE, Rules
from penstock.format.timerunit import (
    WHEEL_SIZE,
    WHEEL_SLOT_SIZE,
    WHEEL_SLOTS,
    WheelSlot,
    decode_wheel_slot,
    encode_wheel_slot,
)
from penstock.store.timerlog import make_durable
from penstock.store.timersnapshot import WheelSnapshots

_PAGE = WHEEL_PAGE
_SLOTS_PER_PAGE = _PAGE // WHEEL_SLOT_SIZE
_READ = 256 * _PAGE
_NOTHING = bytes(_READ)
_NO_SLOT = bytes(WHEEL_SLOT_SIZE)


class TimerWheel:
    """Slots by time. Times are milliseconds; the file counts ticks of ``precision_ms``.

    One thread changes it; others may ask for slots at any time. Only pages that hold a slot take memory.
    """

    def __init__(self, storage: Storage, path: str, precision_ms: int, *, snapshots: bool = False) -> None:
        """Open the file, or make it. CorruptFile when it has a length that no wheel has.

        With ``snapshots`` the newest whole copy is taken instead, if there is one; ``flush`` writes another.
        """
        length = storage.stat(path).size if storage.exists(path) else 0
        if length not in (0, WHEEL_SIZE):
            raise CorruptFile(
                path,
                found=f"{length} bytes instead of {WHEEL_SIZE}",
                hint="delete it: the wheel is made again from the timer log",
            )
        self.precision_ms = precision_ms
        self.is_new = length == 0
        """True when there was no wheel: what it should hold is in the timer log only."""
        self._file: SparseFile = storage.open_sparse(path, WHEEL_SIZE, create=True)
        self._pages: dict[int, bytearray] = {}
        self._dirty: set[int] = set()
        self._snapshots = WheelSnapshots(storage, path)
        self._whole = snapshots
        position = self._snapshots.newest() if snapshots else None
        self.log_position = position
        """How far the timer log was when the whole copy was made; None: the checkpoint says it."""
        if position is not None:
            self.is_new = False
            self._take(0, self._snapshots.read(position))
        elif not self.is_new:
            self._load()

    def slot(self, time_ms: int) -> WheelSlot | None:
        """The slot of a time, or None when nothing fires then."""
        tick = time_ms // self.precision_ms
        page, position = divmod(tick % WHEEL_SLOTS * WHEEL_SLOT_SIZE, _PAGE)
        held = self._pages.get(page)
        if held is None:
            return None
        slot = decode_wheel_slot(held, position)
        return slot if slot.time == tick and slot.last_position >= 0 else None

    def message_count(self, time_ms: int) -> int:
        """How many messages fire at a time."""
        slot = self.slot(time_ms)
        return 0 if slot is None else slot.message_count

    def put(self, time_ms: int, first: int, last: int, count: int, magic: int = 0) -> None:
        """Set the slot of a time, whatever it held before."""
        tick = time_ms // self.precision_ms
        self._store(tick, encode_wheel_slot(WheelSlot(tick, first, last, count, magic)))

    def add(self, time_ms: int, position: int, count: int) -> None:
        """A unit of the timer log joins the slot of a time; ``count`` is -1 for one that deletes another."""
        slot = self.slot(time_ms)
        if slot is None:
            self.put(time_ms, position, position, count)
        else:
            first = position if slot.first_position < 0 else slot.first_position
            self.put(time_ms, first, position, slot.message_count + count, slot.magic)

    def units(
        self, records: list[Any], begin: int, position: int, room: int, rules: Rules, out: int
    ) -> tuple[int, bytes, bytes, dict[str, int]]:
        """What ``join_units`` makes of messages that are to join this wheel; nothing is changed yet."""
        return join_units(records, begin, self._pages, WHEEL_SLOTS, position, room, rules, out)

    def set(self, slots: bytes) -> None:
        """Take over slots that ``units`` gave: what they lead to is in the timer log now."""
        self._dirty |= set_slots(self._pages, WHEEL_SLOTS, slots)

    def erase(self, time_ms: int) -> None:
        """Forget the slot of a time."""
        if self.slot(time_ms) is not None:
            self._store(time_ms // self.precision_ms, _NO_SLOT)

    def clear(self) -> None:
        """Forget every slot."""
        for page, held in self._pages.items():
            held[:] = bytes(_PAGE)
            self._dirty.add(page)

    def used(self, begin_ms: int, end_ms: int) -> Iterator[tuple[int, WheelSlot]]:
        """Times in ``[begin, end)`` at which something fires, in order, with their slots.

        Slots put or erased meanwhile may or may not be seen.
        """
        tick = begin_ms // self.precision_ms
        end = min(-(-end_ms // self.precision_ms), tick + WHEEL_SLOTS)
        while tick < end:
            index = tick % WHEEL_SLOTS
            if index // _SLOTS_PER_PAGE not in self._pages:
                tick += _SLOTS_PER_PAGE - index % _SLOTS_PER_PAGE
                continue
            slot = self.slot(tick * self.precision_ms)
            if slot is not None:
                yield tick * self.precision_ms, slot
            tick += 1

    def flush(self, log_position: int = 0) -> bool:
        """Make every change durable; False when there was none. The timer log is durable up to a position."""
        if not self._dirty and not self.is_new:
            return False
        if self._whole:
            content = bytearray(WHEEL_SIZE)
            for page, held in self._pages.items():
                content[page * _PAGE : page * _PAGE + len(held)] = held
            self._snapshots.write(log_position, bytes(content))
            self._dirty.clear()
            self.is_new = False
            return True
        pages = sorted(self._dirty)
        for page in pages:
            self._file.write(page * _PAGE, bytes(self._pages[page]))
        make_durable(self._file)
        self._dirty.difference_update(pages)
        self.is_new = False
        self._snapshots.remove()
        return True

    def close(self) -> None:
        """Let go of the file. What was not flushed is forgotten."""
        self._file.close()

    def _store(self, tick: int, data: bytes) -> None:
        page, position = divmod(tick % WHEEL_SLOTS * WHEEL_SLOT_SIZE, _PAGE)
        held = self._pages.get(page)
        if held is None:
            held = self._pages[page] = bytearray(_PAGE)
        held[position : position + WHEEL_SLOT_SIZE] = data
        self._dirty.add(page)

    def _load(self) -> None:
        for position in range(0, WHEEL_SIZE, _READ):
            chunk = self._file.read(position, min(_READ, WHEEL_SIZE - position))
            if chunk != _NOTHING[: len(chunk)]:
                self._take(position, chunk)

    def _take(self, position: int, content: bytes) -> None:
        for begin in range(0, len(content), _PAGE):
            page = content[begin : begin + _PAGE]
            if page.count(0) != len(page):
                self._pages[(position + begin) // _PAGE] = bytearray(page)
