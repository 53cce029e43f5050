"""Logs that a side writes once and that all rows about opening share, whatever state they ask for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.bench.copying import copy_sparse, copy_store
from penstock.bench.work import Work

if TYPE_CHECKING:
    from penstock.bench.session import Session

_LOG = "commitlog"


@dataclass(frozen=True, slots=True)
class SharedLog:
    """A store that was killed when all of its messages were visible.

    ``memory`` is the writer's RssAnon after each part; ``options`` the settings it was written with.
    """

    folder: Path
    saved: Path
    memory: list[int]
    options: dict[str, Any]

    def restore(self) -> None:
        """As the kill left it: queues, index, checkpoint and the mark of a store in use.

        Opening and closing do not change a log that is whole, so the log itself stays where it is.
        """
        for entry in self.folder.iterdir():
            if entry.name != _LOG:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        _copy_beside_log(self.saved, self.folder)


def write_log(
    session: Session, side: str, parts: Sequence[Work], *, checkpoint: bool = False, **options: Any
) -> SharedLog:
    """Let a process of its own write the parts and kill it; with a ``checkpoint`` before the last part."""
    folder, saved = session.new_folder(), session.new_folder()
    memory = []
    with session.fresh(side) as child:
        child.ask("open", dir=str(folder), config=session.config("async", **options))
        for number, part in enumerate(parts):
            if checkpoint and number == len(parts) - 1:
                child.ask("checkpoint")
            memory.append(int(child.ask("put", **part.command())["rss_anon"]))
        child.ask("kill")
        child.wait_killed()
    saved.mkdir()
    _copy_beside_log(folder, saved)
    return SharedLog(folder, saved, memory, options)


def _copy_beside_log(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        if entry.is_dir() and entry.name != _LOG:
            copy_store(entry, target / entry.name)
        elif not entry.is_dir():
            copy_sparse(str(entry), str(target / entry.name))
