"""What a Python person would take instead: a table in SQLite, in WAL mode, with an index on the key."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Literal

from penstock.bench.work import Work, unique_keys

Synchronous = Literal["FULL", "OFF"]

_SCHEMA = """
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    queue INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    body BLOB NOT NULL,
    tags TEXT,
    keys TEXT,
    unique_key TEXT
);
CREATE INDEX message_keys ON message (keys);
"""
_INSERT = """
INSERT INTO message (topic, queue, offset, body, tags, keys, unique_key) VALUES (?, ?, ?, ?, ?, ?, ?)
"""


def put_rate(
    path: str | os.PathLike[str], work: Work, *, synchronous: Synchronous, per_commit: int = 1
) -> float:
    """Messages per second of ``work`` into a new database at ``path``, ``per_commit`` messages a transaction.

    The clock stops when the last message is readable and found by its key.
    """
    connection = sqlite3.connect(Path(path), isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.executescript(_SCHEMA)
        execute = connection.cursor().execute
        topic, queues, body = work.topic, work.queues, work.body_bytes()
        new_unique = unique_keys()
        offsets = [0] * queues
        start = time.perf_counter()
        for first in range(0, work.n, per_commit):
            if per_commit > 1:
                execute("BEGIN")
            for index in range(first, min(work.n, first + per_commit)):
                queue = index % queues
                row = (topic, queue, offsets[queue], body, work.tags(index), work.keys(index), new_unique())
                execute(_INSERT, row)
                offsets[queue] += 1
            if per_commit > 1:
                execute("COMMIT")
        read = execute("SELECT body FROM message WHERE id = ?", (work.n,)).fetchone()
        hits = execute("SELECT count(*) FROM message WHERE keys = ?", (work.keys(work.n - 1),)).fetchone()
        seconds = time.perf_counter() - start
        assert read is not None and hits[0] >= 1
        return work.n / seconds
    finally:
        connection.close()
