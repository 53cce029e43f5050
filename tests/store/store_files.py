"""What a store directory holds, to be compared with what another one does."""

from __future__ import annotations

from pathlib import Path


def contents(path: Path) -> dict[str, bytes]:
    """The files of log, queues and index; index files are named by the time they were made."""
    found = {}
    for folder in ("commitlog", "consumequeue", "index"):
        for number, file in enumerate(sorted(p for p in (path / folder).rglob("*") if p.is_file())):
            name = f"index/{number}" if folder == "index" else str(file.relative_to(path))
            found[name] = file.read_bytes()
    return found
