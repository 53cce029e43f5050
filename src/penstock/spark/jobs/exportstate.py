"""What an export keeps in its target: which offsets of which queues are there, in which files.

``_penstock/manifest.json`` says what counts. Readers of a folder of Parquet see the files that are in place,
so a run puts them there in one go at its end: it writes down what it will move and remove (``journal.json``),
does it, and writes the manifest. Whoever comes next finishes a journal that was left; each of its steps may
be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import CorruptFile, StoreError
from penstock.spark.location import Location, hint_for, open_filesystem
from penstock.spark.ranges import QueueRange

STATE = "_penstock"
VERSION = 1
QueueSpan = tuple[int, int, int]
"""Least and greatest offset of a queue in a file, and number of its rows."""


def make_folder(location: Location, filesystem: Any, path: str) -> None:
    """Make the folder of a file, where there are folders: an object store has none."""
    if location.scheme not in ("s3", "gs"):
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One Parquet file of the target. ``path`` is relative to it."""

    path: str
    topic: str
    day: str
    rows: int = 0
    bytes: int = 0
    queues: dict[int, QueueSpan] = field(default_factory=dict)

    def with_rows(self, rows: int, spans: dict[int, QueueSpan]) -> ExportedFile:
        """The same file, longer."""
        queues = dict(self.queues)
        for queue, (low, high, count) in spans.items():
            known = queues.get(queue)
            queues[queue] = (
                (low, high, count)
                if known is None
                else (min(low, known[0]), max(high, known[1]), count + known[2])
            )
        return replace(self, rows=self.rows + rows, queues=queues)

    def with_bytes(self, size: int) -> ExportedFile:
        """The same file, finished."""
        return replace(self, bytes=size)

    def touched_by(self, ranges: Iterable[QueueRange]) -> list[tuple[int, int, int]]:
        """Queue and offsets of the ranges that may have rows in this file."""
        return [
            (part.queue_id, part.start, part.end)
            for part in ranges
            if part.topic == self.topic
            and (span := self.queues.get(part.queue_id)) is not None
            and part.start <= span[1]
            and span[0] < part.end
        ]

    def is_inside(self, touched: list[tuple[int, int, int]]) -> bool:
        """Whether every row is in one of these ranges."""
        return all(
            any(queue == other and start <= low and high < end for other, start, end in touched)
            for queue, (low, high, _) in self.queues.items()
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is in the target. ``generation`` counts the runs that changed it."""

    source: str = ""
    format: str = "parquet"
    generation: int = 0
    ranges: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    files: list[ExportedFile] = field(default_factory=list)

    def end_of(self, topic: str, queue: int) -> int | None:
        """Where the next run goes on with a queue; None if nothing of it is here."""
        known = self.ranges.get((topic, queue))
        return known[-1][1] if known else None

    def with_ranges(self, added: Iterable[QueueRange]) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """The ranges with others among them, joined where they meet."""
        ranges = {key: list(known) for key, known in self.ranges.items()}
        for part in added:
            ranges.setdefault((part.topic, part.queue_id), []).append((part.start, part.end))
        for key, known in ranges.items():
            joined: list[tuple[int, int]] = []
            for start, end in sorted(known):
                if joined and start <= joined[-1][1]:
                    joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
                else:
                    joined.append((start, end))
            ranges[key] = joined
        return ranges

    def as_object(self) -> dict[str, Any]:
        queues: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for (topic, queue), known in sorted(self.ranges.items()):
            queues.setdefault(topic, {})[str(queue)] = known
        files = [
            {
                "path": file.path,
                "topic": file.topic,
                "day": file.day,
                "rows": file.rows,
                "bytes": file.bytes,
                "queues": {str(queue): span for queue, span in sorted(file.queues.items())},
            }
            for file in self.files
        ]
        return {
            "version": VERSION,
            "source": self.source,
            "format": self.format,
            "generation": self.generation,
            "ranges": queues,
            "files": files,
        }

    @classmethod
    def from_object(cls, given: dict[str, Any]) -> Manifest:
        ranges = {
            (topic, int(queue)): [(int(start), int(end)) for start, end in known]
            for topic, queues in given["ranges"].items()
            for queue, known in queues.items()
        }
        files = [
            ExportedFile(
                file["path"],
                file["topic"],
                file["day"],
                file["rows"],
                file["bytes"],
                {int(queue): (low, high, rows) for queue, (low, high, rows) in file["queues"].items()},
            )
            for file in given["files"]
        ]
        return cls(given["source"], given["format"], given["generation"], ranges, files)


class ExportState:
    """The state of one target. Only the driver uses it."""

    def __init__(self, target: Location) -> None:
        self.target = target
        self.filesystem = open_filesystem(target)

    def load(self) -> Manifest:
        """The manifest; an empty one for a new target."""
        found = self._read("manifest.json")
        if found is None:
            return Manifest()
        try:
            if found["version"] != VERSION:
                raise StoreError(
                    f"written by another version of penstock ({found['version']})",
                    file=self._path("manifest.json"),
                )
            return Manifest.from_object(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._corrupt("manifest.json", error) from error

    @property
    def has_foreign_files(self) -> bool:
        """Whether there is something in the target that no export put there."""
        from pyarrow import fs

        with self._told_errors():
            found = self.filesystem.get_file_info(fs.FileSelector(self.target.path, allow_not_found=True))
        return any(entry.base_name != STATE for entry in found) and self._read("manifest.json") is None

    def check_writable(self, run: str) -> None:
        """Raises StoreError now, and not when the first task is done, if nothing can be written here."""
        with self._told_errors():
            self._write(f"{run}.probe", {})
            self.filesystem.delete_file(self._path(f"{run}.probe"))

    def finish_journal(self) -> bool:
        """Finish what an earlier run began to put in place; True if there was something."""
        journal = self._read("journal.json")
        if journal is None:
            return False
        self._apply(journal)
        self.sweep(journal["staging"])
        return True

    def sweep_old(self, today: str) -> None:
        """Remove what runs that were killed before ``today`` (as in their names) have staged."""
        from pyarrow import fs

        folder = fs.FileSelector(f"{self.target.path}/{STATE}/staging", allow_not_found=True)
        for entry in self.filesystem.get_file_info(folder):
            # A day's grace: a run of today may be another driver's, at work.
            if entry.base_name[:8] < today:
                self.filesystem.delete_dir(entry.path)

    def publish(
        self,
        before: Manifest,
        after: Manifest,
        staging: str,
        moves: list[tuple[str, str]],
        removes: list[str],
    ) -> None:
        """Put files in place, take others away, and make ``after`` what counts."""
        if self.load().generation != before.generation:
            raise StoreError(
                "another export changed the target meanwhile", file=str(self.target), hint="run it again"
            )
        journal = {"staging": staging, "moves": moves, "removes": removes, "manifest": after.as_object()}
        with self._told_errors():
            self._write("journal.json", journal)
            self._apply(journal)

    def sweep(self, staging: str) -> None:
        """Remove a run's staging folder, unless a journal still needs what is in it."""
        if self._read("journal.json") is None:
            # In an object store a folder goes with the last object in it.
            with suppress(FileNotFoundError):
                self.filesystem.delete_dir(f"{self.target.path}/{staging}")

    def _apply(self, journal: dict[str, Any]) -> None:
        from pyarrow import fs

        for staged, path in journal["moves"]:
            source, target = f"{self.target.path}/{staged}", f"{self.target.path}/{path}"
            if self.filesystem.get_file_info(source).type == fs.FileType.NotFound:
                continue  # moved before
            make_folder(self.target, self.filesystem, target)
            self.filesystem.move(source, target)
        for path in journal["removes"]:
            gone = f"{self.target.path}/{path}"
            if self.filesystem.get_file_info(gone).type != fs.FileType.NotFound:
                self.filesystem.delete_file(gone)
        self._write("manifest.json", journal["manifest"])
        self.filesystem.delete_file(self._path("journal.json"))

    def _path(self, name: str) -> str:
        return f"{self.target.path}/{STATE}/{name}"

    def _read(self, name: str) -> dict[str, Any] | None:
        from pyarrow import fs

        with self._told_errors():
            if self.filesystem.get_file_info(self._path(name)).type == fs.FileType.NotFound:
                return None
            with self.filesystem.open_input_stream(self._path(name)) as opened:
                data = opened.read()
        try:
            found: dict[str, Any] = json.loads(data)
            return found
        except ValueError as error:
            raise self._corrupt(name, error) from error

    def _write(self, name: str, value: dict[str, Any]) -> None:
        make_folder(self.target, self.filesystem, self._path(name))
        # A local file would be seen half written; an object appears whole by itself.
        path = self._path(f"{name}.new") if self.target.is_local else self._path(name)
        with self.filesystem.open_output_stream(path) as opened:
            opened.write(json.dumps(value).encode())
        if self.target.is_local:
            self.filesystem.move(path, self._path(name))

    @contextmanager
    def _told_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the target cannot be used: {error.strerror or error}",
                file=str(self.target),
                hint=hint_for(self.target),
            ) from error

    def _corrupt(self, name: str, error: Exception) -> CorruptFile:
        return CorruptFile(
            self._path(name), found=f"no state of an export ({error})", hint="export into another folder"
        )
