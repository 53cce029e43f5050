"""What is wrong with a store directory, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding of a scan or a verification.

    ``offset`` is a position in ``file``; ``physical_offset`` is the same place in the whole log, for files of
    the log. A *note* is something a reader should know and no damage: it does not make a store unhealthy.
    """

    kind: str
    file: str
    found: str
    offset: int | None = None
    physical_offset: int | None = None
    length: int | None = None
    hint: str = ""
    note: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For programs: every field, with ``severity`` instead of ``note``."""
        values = asdict(self)
        values["severity"] = "note" if values.pop("note") else "fault"
        return values

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file} at offset {self.offset}"
        return f"{where}: {self.found}" + (f" ({self.hint})" if self.hint else "")


class FaultList:
    """Findings in order of discovery, bounded: what a hostile directory can make us remember has an end."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self.faults: list[Fault] = []
        self.notes: list[Fault] = []
        self.fault_count = 0
        self.note_count = 0

    def add(self, fault: Fault) -> None:
        """Count a finding, and keep it while there is room."""
        if fault.note:
            self.note_count += 1
            if len(self.notes) < self.limit:
                self.notes.append(fault)
        else:
            self.fault_count += 1
            if len(self.faults) < self.limit:
                self.faults.append(fault)

    __call__ = add
