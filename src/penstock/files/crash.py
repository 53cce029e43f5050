"""Which states a crash may leave behind, chosen so that few of them find most mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from math import prod

from penstock.files.memoryfile import PAGE, MemoryFile

SECTOR = 512

Choice = tuple[int, ...]


def choices(times: list[list[int]], limit: int, rng: random.Random) -> Iterator[Choice]:
    """For each open thing the index of the value it has after the crash; ``times[i]`` says when its values
    came.

    All combinations when there are at most ``limit``. Else, in turn until ``limit``: nothing kept,
    everything kept, moments (everything as it was then), all but one thing kept, one thing alone kept,
    random picks.
    """
    if prod(len(options) for options in times) <= limit:
        yield from product(*(range(len(options)) for options in times))
        return
    seen: set[Choice] = set()
    for choice in _interleaved(times, rng):
        if choice not in seen:
            seen.add(choice)
            yield choice
            if len(seen) >= limit:
                return


def _interleaved(times: list[list[int]], rng: random.Random) -> Iterator[Choice]:
    count = len(times)
    dropped: Choice = (0,) * count
    kept: Choice = tuple(len(options) - 1 for options in times)
    yield dropped
    yield kept
    moments = sorted(set(chain.from_iterable(times)))
    rng.shuffle(moments)
    order = list(range(count))
    rng.shuffle(order)
    streams: list[Iterator[Choice]] = [
        (tuple(_index_at(options, moment) for options in times) for moment in moments),
        (_with(kept, place, 0) for place in order),
        (_with(dropped, place, kept[place]) for place in order),
        (tuple(rng.randrange(len(options)) for options in times) for _ in range(1 << 30)),
    ]
    while streams:
        for stream in list(streams):
            choice = next(stream, None)
            if choice is None:
                streams.remove(stream)
            else:
                yield choice


def _index_at(options: list[int], moment: int) -> int:
    return max(index for index, time in enumerate(options) if index == 0 or time <= moment)


def _with(choice: Choice, place: int, value: int) -> Choice:
    return (*choice[:place], value, *choice[place + 1 :])


@dataclass(frozen=True, slots=True)
class NameChange:
    """One step of a folder: the names it sets, at once or not at all. None: the name is gone."""

    time: int
    names: tuple[tuple[str, MemoryFile | None], ...]


def apply_change(names: dict[str, MemoryFile], change: NameChange) -> None:
    for name, file in change.names:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


class Cut:
    """The open questions of a storage at one moment, and what is on disk for each way to answer them."""

    def __init__(self, durable: dict[str, MemoryFile], changes: list[NameChange]) -> None:
        self._names = dict(durable)
        self._changes = list(changes)
        files = {id(file): file for file in self._names.values()}
        for change in self._changes:
            files.update((id(file), file) for _, file in change.names if file is not None)
        self._files = list(files.values())
        self._bodies = {id(file): bytes(file.body) for file in self._files}
        self.times: list[list[int]] = [[0, change.time] for change in self._changes]
        self._sizes: list[tuple[MemoryFile, list[tuple[int, int]]]] = []
        self._pages: list[tuple[MemoryFile, int, list[tuple[int, bytes]]]] = []
        for file in self._files:
            if not file.sizes.settled:
                self._sizes.append((file, list(file.sizes.values)))
                self.times.append([time for time, _ in file.sizes.values])
        first_page = len(self.times)
        for file in self._files:
            for number, history in sorted(file.pages.items()):
                self._pages.append((file, number, list(history.values)))
                self.times.append([time for time, _ in history.values])
        self.page_places = range(first_page, len(self.times))
        self.kept = tuple(len(options) - 1 for options in self.times)

    def contents(self, choice: Choice, torn: dict[int, int] | None = None) -> dict[str, bytes]:
        names = dict(self._names)
        for change, picked in zip(self._changes, choice, strict=False):
            if picked:
                apply_change(names, change)
        place = len(self._changes)
        sizes = {id(file): len(self._bodies[id(file)]) for file in self._files}
        for file, found in self._sizes:
            sizes[id(file)] = found[choice[place]][1]
            place += 1
        bodies = {}
        for file in self._files:
            body = bytearray(self._bodies[id(file)])
            body.extend(bytes(max(0, sizes[id(file)] - len(body))))
            bodies[id(file)] = body
        for file, number, versions in self._pages:
            picked = choice[place]
            content = versions[picked][1]
            if torn and place in torn and picked > 0:
                sectors = torn[place] * SECTOR
                content = content[:sectors] + versions[picked - 1][1][sectors:]
            body = bodies[id(file)]
            begin = number * PAGE
            if begin < len(body):
                body[begin : begin + PAGE] = content[: len(body) - begin]
            place += 1
        return {name: bytes(bodies[id(file)][: sizes[id(file)]]) for name, file in names.items()}
