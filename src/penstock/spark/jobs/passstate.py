"""What the check of one part of a log takes and gives, and where a pass stands between two parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.config import StoreConfig
from penstock.spark.places import Place
from penstock.store.damagedpart import Damage
from penstock.store.fault import Fault
from penstock.store.verify import PassCounts

NOWHERE = 1 << 62

Key = tuple[str, int]
EntryPlace = tuple[str, int] | None
"""Index file and number of the entry that comes next; None behind the last."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """Where the pass stands in one queue of 20-byte units. Counters are of one part only."""

    first: int
    next: int
    ended: bool
    checked: int = 0
    missing: int = 0
    first_missing: int = -1

    def then(self, later: QueueState) -> QueueState:
        """This part and the one behind it as one."""
        return QueueState(
            self.first if self.first >= 0 else later.first,
            later.next,
            later.ended,
            self.checked + later.checked,
            self.missing + later.missing,
            self.first_missing if self.missing else later.first_missing,
        )


@dataclass(frozen=True, slots=True)
class BatchState:
    """Where the pass stands in a queue of batches. Fresh: units before ``begin`` are older than the log."""

    begin: int
    next: int
    is_fresh: bool
    checked: int = 0
    missing: int = 0


@dataclass(slots=True)
class PassState:
    """Where a pass over the log stands between two parts."""

    position: int
    entry: EntryPlace
    last_offset: int = -1
    last_store_timestamp: int = 0
    damage: list[Damage] = field(default_factory=list)
    queues: dict[Key, QueueState] = field(default_factory=dict)
    batches: dict[Key, BatchState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownStore:
    """What the driver found out about the store: tasks need not look at all its files again."""

    config: StoreConfig
    is_closed: bool
    is_live: bool


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """One task's work: a part of the log, or the chains of some index files.

    ``end`` is None for the part that goes on to the end of the log. Without ``state`` the task guesses.
    """

    place: Place
    begin: int = 0
    end: int | None = None
    live_end: int | None = None
    index_files: tuple[str, ...] = ()
    state: PassState | None = None
    limit: int = 1000
    known: KnownStore | None = None


@dataclass(slots=True)
class PartResult:
    """What a task saw. Bytes are by file of the log: of records, of blanks, and damaged ones."""

    begin: int = -1
    end: int = -1
    entry_begin: EntryPlace = None
    entry_end: EntryPlace = None
    log_ended: bool = False
    tail: str = ""
    last_offset: int = -1
    last_store_timestamp: int = 0
    trusted_timestamp: int = NOWHERE
    looked_back: bool = False
    damage: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    lost_records: int = 0
    queues: dict[Key, QueueState] = field(default_factory=dict)
    batches: dict[Key, BatchState] = field(default_factory=dict)
    lights: dict[Key, int] = field(default_factory=dict)
    counts: PassCounts = field(default_factory=PassCounts)
    bytes: dict[str, list[int]] = field(default_factory=dict)
    index_files: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)
    fault_count: int = 0

    def follows(self, state: PassState) -> bool:
        """Whether the guess that this part was checked from is where the pass really stands."""
        return (
            self.begin == state.position
            and self.entry_begin == state.entry
            and not (self.looked_back and state.last_offset >= 0)
            and state.last_store_timestamp <= self.trusted_timestamp
            and all(
                known.next == queue.first and not (known.ended and (queue.checked or not queue.ended))
                for key, queue in self.queues.items()
                if (known := state.queues.get(key)) is not None
            )
            and all(
                batch.is_fresh if (before := state.batches.get(key)) is None else before.next == batch.begin
                for key, batch in self.batches.items()
            )
        )

    def advance(self, state: PassState) -> None:
        """Move a state behind this part."""
        state.position, state.entry = self.end, self.entry_end
        if self.last_offset >= 0:
            state.last_offset = self.last_offset
        state.last_store_timestamp = max(state.last_store_timestamp, self.last_store_timestamp)
        state.damage += self.damage
        for key, queue in self.queues.items():
            known = state.queues.get(key)
            state.queues[key] = queue if known is None else known.then(queue)
        for key, batch in self.batches.items():
            before = state.batches.get(key)
            state.batches[key] = (
                batch
                if before is None
                else BatchState(
                    before.begin,
                    batch.next,
                    before.is_fresh,
                    before.checked + batch.checked,
                    before.missing + batch.missing,
                )
            )
