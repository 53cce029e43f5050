"""What is in a store directory, in figures: for ``penstock store info``."""

from __future__ import annotations

import struct
from typing import Any

from penstock.config import StoreConfig
from penstock.files.storage import Storage
from penstock.store.directory import StoreDirectory
from penstock.store.indexverifier import is_index_name
from penstock.store.readonly import ReadOnlyStore


def summarise(path: str, config: StoreConfig | None = None) -> dict[str, Any]:
    """Figures of a directory, closed or in use. Raises NotAStore if it is none."""
    directory = StoreDirectory(None, path, config)
    with ReadOnlyStore(path, config=config) as opened:
        queues = [
            {
                "topic": topic,
                "queue_id": queue_id,
                "min_offset": opened.min_offset(topic, queue_id),
                "max_offset": opened.max_offset(topic, queue_id),
            }
            for topic, queue_id in opened.queues()
        ]
        end = opened.max_physical_offset
        faults = [str(fault) for fault in opened.faults]
    files = directory.log_files
    config = directory.config
    return {
        "path": path,
        "state": "in use" if directory.is_live else "closed" if directory.is_closed else "not closed cleanly",
        "log": {
            "files": len(files),
            "folders": list(directory.log_folders.all),
            "segment_size": config.mapped_file_size_commit_log,
            "begin": directory.min_physical_offset,
            "end": max(end, directory.min_physical_offset),
            "file_bytes": sum(file.size for file in files),
        },
        "topics": sorted({queue["topic"] for queue in queues}),
        "queues": queues,
        "index": {
            **_index(directory.storage, directory.path("index")),
            "slots": config.max_hash_slot_num,
            "capacity": config.max_index_num,
        },
        "checkpoint": directory.checkpoint._asdict(),
        "sizes": {
            "consume_queue": config.mapped_file_size_consume_queue,
            "batch_consume_queue": config.mapper_file_size_batch_consume_queue,
            "consume_queue_ext": config.mapped_file_size_consume_queue_ext,
            "timer_log": config.mapped_file_size_timer_log,
        },
        "faults": faults,
    }


def _index(storage: Storage, folder: str) -> dict[str, int]:
    """Files and used entries of the index, by the files' own headers."""
    files = entries = 0
    try:
        names = [e.name for e in storage.listdir(folder) if not e.is_dir and is_index_name(e.name)]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    for name in names:
        data = storage.pread(f"{folder}/{name}", 36, 4)
        if len(data) == 4:
            files += 1
            entries += max(0, struct.unpack(">i", data)[0] - 1)
    return {"files": files, "entries": entries}
