"""Sides of the bench that take turns, and the rows of the table that come of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.bench.row import Row
from penstock.bench.session import median
from penstock.bench.spark.turns import Measured, Spec, Turns

Wanted = Callable[[str], bool]
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """A row: which side is ours, which the peer, and what their ratio should be.

    ``unit`` says what is compared: rows/s, seconds (s), or the memory of the Python workers (bytes).
    """

    key: str
    work: str
    ours: str
    peer: str
    against: str
    at_least: float | None = None
    unit: str = "rows/s"


@dataclass
class Comparison:
    """Sides with what they have answered so far. ``once``: one round is enough, nothing is demanded of it."""

    name: str
    sides: dict[str, Spec]
    plans: list[Plan]
    once: bool = False
    results: dict[str, list[Measured]] = field(default_factory=dict)
    took: float = 0.0

    def chosen(self, wanted: Wanted) -> Comparison | None:
        """Only the rows that are wanted, and the sides that they need; None when there are none."""
        plans = [plan for plan in self.plans if wanted(plan.key)]
        needed = {side for plan in plans for side in (plan.ours, plan.peer)}
        sides = {side: spec for side, spec in self.sides.items() if side in needed}
        return Comparison(self.name, sides, plans, self.once) if plans else None

    def take_turns(self, turns: Turns, number: int) -> None:
        """A figure for each side; the first one changes from round to round."""
        begin = time.monotonic()
        names = list(self.sides)
        for side in names if number % 2 == 0 else names[::-1]:
            turns.session.progress(f"{self.name}: {side}, round {number + 1} of {turns.scale.rounds}")
            turns.session.settle()
            self.results.setdefault(side, []).append(turns.measure(self.sides[side]))
        self.took = time.monotonic() - begin

    def rows(self) -> Iterator[Row]:
        """The rows whose sides have both answered."""
        for plan in self.plans:
            if self.results.get(plan.ours) and self.results.get(plan.peer):
                yield self._row(plan)

    def _row(self, plan: Plan) -> Row:
        ours, peer = self.results[plan.ours], self.results[plan.peer]
        return Row(
            plan.key,
            plan.work,
            plan.unit,
            _figure(plan, ours),
            _figure(plan, peer),
            plan.at_least,
            lower_is_better=plan.unit != "rows/s",
            against=plan.against,
            detail=self._detail(plan, ours, peer),
        )

    def _detail(self, plan: Plan, ours: list[Measured], peer: list[Measured]) -> dict[str, object]:
        both = {"ours": ours, "peer": peer}
        if plan.unit == "bytes":
            return {
                "java_heap_after_collection": {
                    side: max(t.heap for t in made) for side, made in both.items()
                },
                "java_rss_anon": {side: max(t.java for t in made) for side, made in both.items()},
            }
        seconds = {side: [turn.seconds for turn in made] for side, made in both.items()}
        if plan.unit == "s":
            return {"seconds": seconds}
        return {
            "mib_per_s": _figure(plan, ours) * ours[0].log_bytes / ours[0].rows / _MIB,
            "rounds": {side: [turn.rate for turn in made] for side, made in both.items()},
            "seconds": seconds,
            "cpu_us_per_row": {side: _cpu(made) for side, made in both.items()},
        }


def _cpu(turns: list[Measured]) -> float | None:
    """Microseconds of processor time for a row, which others on the machine change less than the rate."""
    found = [used / turn.rows * 1e6 for turn in turns for used in turn.cpu]
    return median(found) if found else None


def _figure(plan: Plan, turns: list[Measured]) -> float:
    if plan.unit == "bytes":
        return float(max(turn.workers for turn in turns))
    if plan.unit == "s":
        return median([median(turn.seconds) for turn in turns])
    return median([turn.rate for turn in turns])
