"""One line of a benchmark's table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NEAR = 0.85


@dataclass(frozen=True, slots=True)
class Row:
    """A work with both figures.

    ``ratio`` says how much better ours is, whichever way the unit counts; ``at_least`` is what it should be.
    ``peer`` is None when there was no peer, ``ratio`` then too. ``ceiling`` is what the driver of the load
    allows at all: who is near it has reached what can be reached.
    """

    key: str
    work: str
    unit: str
    ours: float
    peer: float | None
    at_least: float | None
    lower_is_better: bool = False
    against: str = "RocketMQ"
    ceiling: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Ours to the peer's; above 1 is better than the peer."""
        if self.peer is None or not self.ours or not self.peer:
            return None
        return self.peer / self.ours if self.lower_is_better else self.ours / self.peer

    @property
    def reached(self) -> bool | None:
        """Whether the ratio is what it should be; None when there is nothing to compare."""
        if self.ceiling is not None and self.ours >= NEAR * self.ceiling:
            return True
        ratio = self.ratio
        return None if ratio is None or self.at_least is None else ratio >= self.at_least

    def to_json(self) -> dict[str, Any]:
        """As it stands in the ``rows`` of the report."""
        return {
            "key": self.key,
            "work": self.work,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "ratio": self.ratio,
            "at_least": self.at_least,
            "reached": self.reached,
            "against": self.against,
            **({} if self.ceiling is None else {"ceiling": self.ceiling}),
            **self.detail,
        }
