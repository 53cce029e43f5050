"""Recorded conversations of real clients with the real broker and name server: ``tests/golden/wire``."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "golden" / "wire"


class Recorded(NamedTuple):
    """One frame: when (ms), on which connection, to whom (``broker``, ``namesrv``, ``client``)."""

    time: float
    connection: int
    to: str
    frame: bytes


def conversations() -> list[str]:
    """Names of the recordings that are here."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))


def conversation(name: str) -> tuple[dict[str, Any], list[Recorded]]:
    """What the recording says about itself, and its frames in order."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        about = json.loads(next(lines))
        rows = [json.loads(line) for line in lines]
    frames = [
        Recorded(row["t"], row["conn"], row["to"], base64.b64decode(row["frame"]))
        for row in rows
        if "frame" in row
    ]
    return about, frames
