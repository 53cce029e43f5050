"""Where messages are read from: what the ``path`` option names, found and told apart.

A path is a store directory, a folder of log segments, one segment, or a glob of any of these, on the machine
or behind a URI that ``pyarrow.fs`` opens. Several stand in one option, separated by commas or as a JSON list.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.errors import CorruptFile, NotAStore, StoreError, UsageError
from penstock.files.storage import Storage
from penstock.spark.location import Location, hint_for, parse_location
from penstock.spark.segments import RemoteDirectory, SegmentDirectory, chosen_files
from penstock.store.directory import StoreDirectory, is_locked
from penstock.store.sizes import (
    QueueFile,
    files_of,
    files_of_log,
    is_queue_file_name,
    is_store,
    segment_size_of,
)

LOOKED_FOR = (
    "a path is a store directory (it holds commitlog), a folder of log segments, a segment (a file named by"
    " its first offset in 20 digits), a glob of these, or a URI such as s3://bucket/store"
)


@dataclass(frozen=True)
class Place:
    """One store, or segments of one log without a store around them. Pickles as names only.

    ``uri`` is what a person reads, without secrets; ``names`` are the segments that were asked for (None: all
    that are in the folder). ``segment_size`` is what the files told when the place was opened, 0 if nothing.
    """

    location: Location
    kind: str
    names: tuple[str, ...] | None = None
    segment_size: int = 0

    def __getstate__(self) -> dict[str, Any]:
        # What was found in one process (open files, listings) is not for another.
        return {name: self.__dict__[name] for name in ("location", "kind", "names", "segment_size")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def uri(self) -> str:
        """For messages and reports."""
        if self.names is not None and len(self.names) == 1:
            return str(self.location.child(self.names[0]))
        return str(self.location)

    @property
    def root(self) -> str:
        """The folder, as the storage names it."""
        return self.location.path

    @property
    def is_local(self) -> bool:
        """Whether it is on a file system of the machine."""
        return self.location.is_local

    @property
    def storage(self) -> Storage:
        """The storage of this process."""
        return self.location.storage

    @property
    def has_queues(self) -> bool:
        """Whether queue offsets can be looked up in it: a store with consume queues."""
        return self.kind == "store" and any(
            self.storage.exists(f"{self.root}/{name}") for name in ("consumequeue", "batchconsumequeue")
        )

    @cached_property
    def directory(self) -> StoreDirectory:
        """The files, as they lay there when this was first asked for; ``refreshed`` looks again.

        The sizes of all queues are looked at: a task that only reads the log asks ``log_files``.
        """
        if self.kind == "segments":
            return SegmentDirectory(self.storage, self.root, self.names, self.segment_size)
        if self.is_local:
            return StoreDirectory(self.storage, self.root)
        return RemoteDirectory(self.storage, self.root)

    @property
    def log_files(self) -> list[QueueFile]:
        """Files of the log as they are now, oldest first; one listing of each of its folders."""
        found = files_of(self.storage, self.root) if self.kind == "segments" else _log_of(self.location)
        return chosen_files(found, self.names, self.segment_size)

    @property
    def cut_files(self) -> list[CorruptFile]:
        """Files of a store's log that were longer once. Of segments alone nobody says how long they were.

        A short file without anything in it is none of these: a crash left it while it was made. And with an
        owner at work, files are being made.
        """
        if self.kind == "segments" or (self.is_local and is_locked(f"{self.root}/lock")):
            return []
        hint = "restore it from a backup; badRecords=skip reads what is there"
        return [
            CorruptFile(file.path, found=f"{file.size} bytes, cut short", hint=hint)
            for file in self.log_files
            if file.size < (self.segment_size or file.size + 1) and any(self.storage.pread(file.path, 0, 8))
        ]

    def refreshed(self) -> Place:
        """The same place, not yet looked at."""
        return replace(self)


def open_places(path: str | os.PathLike[str] | Sequence[str]) -> list[Place]:
    """Everything the option names, each place once, in the order given.

    Raises NotAStore for a name behind which there is nothing to read, saying what was looked for, and
    StoreError when a place cannot be looked at.
    """
    stores: dict[Location, Place] = {}
    for location in [parse_location(text) for text in path_list(path)]:
        try:
            for place in _places_at(location):
                known = stores.get(place.location)
                stores[place.location] = place if known is None else _joined(known, place)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _nothing_at(location) from error
        except OSError as error:
            raise _unreadable(location, error) from error
    return list(stores.values())


def path_list(path: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """The single paths of the option. A comma in the name of something that exists does not part it."""
    if not isinstance(path, str | os.PathLike):
        texts = [os.fspath(part) for part in path]
    else:
        text = os.fspath(path).strip()
        texts = _json_list(text) if text.startswith("[") else _parted(text)
    texts = [text.strip() for text in texts if text.strip()]
    if not texts:
        raise UsageError("the path is empty", hint=LOOKED_FOR)
    return texts


def _json_list(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return _parted(text)  # a glob may begin with a bracket
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise UsageError(
            f"the path {text} is JSON, but not a list of strings", hint='write ["/data/a", "/data/b"]'
        )
    return found


def _parted(text: str) -> list[str]:
    if "," not in text or Path(text).exists():
        return [text]
    return text.split(",")


def _places_at(location: Location) -> list[Place]:
    if location.is_glob and not location.storage.exists(location.path):
        return _matches(location)
    return [_place_at(location, location.storage.stat(location.path).is_dir)]


def _place_at(location: Location, is_dir: bool) -> Place:
    storage = location.storage
    if not is_dir:
        if not is_queue_file_name(location.name):
            raise NotAStore(
                "this file is not a log segment: its name is not an offset of 20 digits",
                file=str(location),
                hint=LOOKED_FOR,
            )
        folder = location.parent
        return Place(folder, "segments", (location.name,), _segment_size(storage, folder.path))
    if is_store(storage, location.path):
        return Place(location, "store", None, segment_size_of(storage, _log_of(location)))
    if files_of(storage, location.path):
        return Place(location, "segments", None, _segment_size(storage, location.path))
    raise NotAStore("there is neither a store nor a log segment in here", file=str(location), hint=LOOKED_FOR)


def _log_of(location: Location) -> list[QueueFile]:
    """Files of a store's log. Behind a URI they lie in one folder: nobody can name the disks of a machine."""
    if location.is_local:
        return files_of_log(location.storage, location.path)
    return files_of(location.storage, f"{location.path}/commitlog")


def _matches(location: Location) -> list[Place]:
    """What a glob names. Files that are no segments are passed over, as long as something is left."""
    places: dict[Location, Place] = {}
    seen = 0
    for found, is_dir in location.glob():
        seen += 1
        try:
            place = _place_at(found, is_dir)
        except NotAStore:
            continue
        known = places.get(place.location)
        places[place.location] = place if known is None else _joined(known, place)
    if not places:
        what = f"of {seen} names that match none is" if seen else "nothing matches, so there is no"
        raise NotAStore(f"{what} a store or a log segment", file=str(location), hint=LOOKED_FOR)
    return list(places.values())


def _joined(one: Place, other: Place) -> Place:
    """Two selections of one folder as one: nothing is read twice."""
    if one.names is None or other.names is None:
        return one if one.names is None else other
    return replace(one, names=tuple(sorted({*one.names, *other.names})))


def _segment_size(storage: Storage, folder: str) -> int:
    """What the segments of a folder tell of their size; of one that was cut short, what its name allows."""
    files = [file for file in files_of(storage, folder) if file.size]
    size = segment_size_of(storage, files_of(storage, folder))
    if size or not files:
        return size
    longest = max(file.size for file in files)
    step = 1 << 30
    while step > longest and any(file.begin % step for file in files):
        step //= 2
    return max(step, longest)


def _nothing_at(location: Location) -> NotAStore:
    above = location.parent
    beside: list[str] = []
    while location.is_local and above.path != above.parent.path and not above.storage.exists(above.path):
        above = above.parent
    try:
        beside = [entry.name for entry in above.storage.listdir(above.path)][:6]
    except OSError:
        beside = []
    found = f"; {above} holds {', '.join(beside)}" if beside else ""
    return NotAStore(
        "there is nothing here" + ("" if location.is_local else f" ({location.scheme})"),
        file=str(location),
        hint=f"{LOOKED_FOR}{found}; every worker has to see the same path",
    )


def _unreadable(location: Location, error: OSError) -> StoreError:
    return StoreError(
        f"cannot be looked at: {error.strerror or error}", file=str(location), hint=hint_for(location)
    )
