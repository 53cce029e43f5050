"""Store directories written by real RocketMQ, unpacked for a test (see golden/README.md)."""

from __future__ import annotations

import base64
import json
import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "store.tar.gz").exists())
KILLED_CASES = [case for case in CASES if (GOLDEN / case / "recovered.tar.gz").exists()]
PUT_CASES = [case for case in CASES if case != "broker"]
"""Cases whose manifest lists puts; ``broker`` lists its log instead."""


@lru_cache(maxsize=4)
def read_manifest(case: str) -> dict[str, Any]:
    """What the case holds, as the Java store said it. Large manifests lie inside the archive."""
    beside = GOLDEN / case / "manifest.json"
    if beside.exists():
        return json.loads(beside.read_bytes())  # type: ignore[no-any-return]
    with tarfile.open(GOLDEN / case / "store.tar.gz") as archive:
        member = archive.extractfile("manifest.json")
        assert member is not None
        return json.load(member)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GoldenStore:
    """One case on disk: ``path`` is the store directory, free to be changed."""

    case: str
    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """Shared between tests: read only."""
        return read_manifest(self.case)

    def setting(self, name: str, default: int) -> int:
        """A store option by its RocketMQ name."""
        return int(self.manifest["config"].get(name, default))

    @property
    def answers(self) -> dict[str, Any]:
        """What a reader of the directory should answer: after reopening, or after recovery."""
        for name in ("afterReopen", "afterRecovery"):
            if name in self.manifest:
                return self.manifest[name]  # type: ignore[no-any-return]
        raise AssertionError(f"{self.case} has no answers")

    def files(self, folder: str) -> list[Path]:
        """Files of a file queue (or the index), oldest first; none when the folder is missing."""
        path = self.path / folder
        return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else []

    def log_files(self) -> list[tuple[int, bytes]]:
        """First offset and bytes of each commit log file."""
        return [(int(file.name), file.read_bytes()) for file in self.files("commitlog")]

    def queue_folders(self, kind: str) -> list[tuple[str, int, str]]:
        """Topic, queue id and folder of every queue of a kind, such as ``consumequeue_ext``."""
        root = self.path / kind
        return [
            (folder.parent.name, int(folder.name), f"{kind}/{folder.parent.name}/{folder.name}")
            for folder in sorted(root.glob("*/*"))
            if folder.is_dir()
        ]


def unpack(case: str, target: Path, *, recovered: bool = False) -> GoldenStore:
    """The case's directory under ``target``; with ``recovered`` the one the real store recovered."""
    name = "recovered" if recovered else "store"
    with tarfile.open(GOLDEN / case / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return GoldenStore(case, target / name)


def body_of(value: dict[str, Any]) -> bytes:
    """The bytes of a manifest's body: its unit repeated and cut."""
    unit, length = base64.b64decode(value["unit"]), int(value["length"])
    return (unit * (length // len(unit) + 1))[:length] if unit else b""
