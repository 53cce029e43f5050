"""The files in the folder of one queue, before anything is known of their content."""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.errors import CorruptFile
from penstock.files.storage import Entry, SparseFile, Storage

PAGE = 4096


def numbered_files(storage: Storage, folder: str) -> list[Entry]:
    """Files whose names are offsets, in order; none without the folder. Others are other people's."""
    try:
        entries = storage.listdir(folder)
    except FileNotFoundError:
        return []
    files = [e for e in entries if not e.is_dir and e.name.isascii() and e.name.isdigit()]
    return sorted(files, key=lambda e: int(e.name)) if len(files) > 1 else files


def whole_files(folder: str, entries: Sequence[Entry], file_size: int) -> list[int]:
    """First offsets of the files up to the first that is missing or was never made.

    What is behind such a place comes again from the log. Raises CorruptFile for any other size.
    """
    offsets: list[int] = []
    for entry in entries:
        if offsets and int(entry.name) != offsets[-1] + file_size:
            break
        if entry.size == 0:
            break
        if entry.size != file_size:
            raise CorruptFile(
                f"{folder}/{entry.name}",
                found=f"{entry.size} bytes instead of {file_size}",
                hint="restore it from a copy; or remove the queue's folder, it is rebuilt from the log",
            )
        offsets.append(int(entry.name))
    return offsets


def remove_cut_off(storage: Storage, folder: str, entries: Sequence[Entry]) -> list[CorruptFile]:
    """Remove files that ``whole_files`` left out, from the end; a finding for each that held anything."""
    for entry in reversed(entries):
        storage.unlink(f"{folder}/{entry.name}")
    if entries:
        storage.sync_dir(folder)
    return [
        CorruptFile(
            f"{folder}/{entry.name}",
            found="the file before it is missing or empty",
            hint="it was removed; the queue is rebuilt from the log",
        )
        for entry in entries
        if entry.size
    ]


def is_hole(file: SparseFile, position: int) -> bool:
    """Whether nothing but zeros follows, without reading what has no blocks."""
    page = min(file.size, -(-(position + 1) // PAGE) * PAGE)
    if not _is_zero(file.read(position, page - position)):
        return False
    if file.fileno() >= 0:
        try:
            page = os.lseek(file.fileno(), page, os.SEEK_DATA)
        except OSError:
            return True  # no data behind it
    while page < file.size:
        data = file.read(page, 1 << 20)
        if not data or not _is_zero(data):
            return False
        page += len(data)
    return True


def _is_zero(data: bytes) -> bool:
    return data.count(0) == len(data)
