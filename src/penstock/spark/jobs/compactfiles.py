"""The files around the copied records: blanks, settings, one directory put in the place of another."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.files.disk import DiskStorage
from penstock.format.record import encode_blank
from penstock.message.topic import LMQ_PREFIX
from penstock.spark.places import Place


def has_special_queues(place: Place) -> bool:
    """Batch queues, extension files and light queues: only the store itself builds them."""
    exists = place.storage.exists
    if any(exists(f"{place.root}/{kind}") for kind in ("batchconsumequeue", "consumequeue_ext")):
        return True
    folder = f"{place.root}/consumequeue"
    return exists(folder) and any(
        entry.name.startswith(LMQ_PREFIX) for entry in place.storage.listdir(folder)
    )


def close_files(storage: DiskStorage, log: str, used: dict[int, int], segment_size: int) -> None:
    """A blank closes every file but the last."""
    last = max(used)
    for begin, end in {0: 0, **used}.items():
        if begin == last:
            continue
        file = storage.open_sparse(f"{log}/{begin:020d}", segment_size)
        try:
            file.write(end, encode_blank(segment_size - end))
            file.sync()
        finally:
            file.close()


def copy_settings(place: Place, draft: str) -> None:
    """The JSON files under ``config``: all they say is by topic, queue and queue offset, and stays true."""
    folder = f"{place.root}/config"
    if place.kind != "store" or not place.storage.exists(folder):
        return
    storage = DiskStorage()
    storage.makedirs(f"{draft}/config")
    for entry in place.storage.listdir(folder):
        if not entry.is_dir and entry.name.endswith((".json", ".json.bak")):
            storage.write_atomic(
                f"{draft}/config/{entry.name}", place.storage.read_file(f"{folder}/{entry.name}")
            )


def swap(root: str, made: str) -> str:
    """Put the new directory where the old one is; the name that the old one has now."""
    storage = DiskStorage()
    kept = f"{root}.before-compaction-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}"
    storage.rename(root, kept)
    storage.rename(made, root)
    storage.sync_dir(str(Path(root).parent))
    return kept
