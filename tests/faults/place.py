"""A small store over memory, for a test to break."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from crash.ledger import contents
from penstock import Message, StoreConfig, open_store
from penstock.clock import ManualClock
from penstock.files.memory import MemoryStorage

ROOT = "/store"

SMALL = StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=20 * 10,
    max_hash_slot_num=20,
    max_index_num=50,
)


def body_of(number: int, size: int = 0) -> bytes:
    return b"body %d " % number + b"x" * size


@dataclass
class Place:
    """A storage, a clock and at most one open store. Messages are numbered; each has a key of its own."""

    config: StoreConfig = SMALL
    storage: MemoryStorage = None  # type: ignore[assignment]
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_000_000))
    store: Any = None

    def __post_init__(self) -> None:
        if self.storage is None:
            self.storage = MemoryStorage(clock=self.clock)

    def open(self, config: StoreConfig | None = None) -> Any:
        self.store = open_store(
            ROOT, config=config or self.config, storage=self.storage, clock=self.clock, background=False
        )
        return self.store

    def kill(self) -> None:
        self.store.abandon()

    def reopen_after_kill(self) -> Any:
        self.kill()
        return self.open()

    def put(self, number: int, size: int = 0, *, topic: str = "T", queue_id: int = 0) -> Any:
        result = self.store.put(self.message(number, size, topic=topic, queue_id=queue_id))
        assert result.status == "PUT_OK", result
        self.clock.advance(10)
        return result

    def message(self, number: int, size: int = 0, *, topic: str = "T", queue_id: int = 0) -> Message:
        return Message(topic, body_of(number, size), tags="tag", keys=f"k{number}", queue_id=queue_id)

    def numbers(self, topic: str = "T", queue_id: int = 0) -> list[int]:
        """Numbers of the readable messages of a queue, in order."""
        return [int(body.split()[1]) for _, _, body in contents(self.store).get((topic, queue_id), [])]

    def found(self, number: int, topic: str = "T") -> list[int]:
        """Numbers of the messages that the index finds under a message's key."""
        return [int(m.body.split()[1]) for m in self.store.query(topic, f"k{number}")]

    def path(self, *parts: str) -> str:
        return str(PurePath(ROOT, *parts))

    def files(self, folder: str) -> list[str]:
        """Paths of the files of a folder, oldest first."""
        if not self.storage.exists(self.path(folder)):
            return []
        return [
            self.path(folder, entry.name)
            for entry in self.storage.listdir(self.path(folder))
            if not entry.is_dir
        ]

    def log_file(self, offset: int) -> tuple[str, int]:
        """The log file of a physical offset, and the place in it."""
        size = self.config.mapped_file_size_commit_log
        return self.path("commitlog", f"{offset - offset % size:020d}"), offset % size

    def overwrite_log(self, offset: int, data: bytes) -> None:
        """Damage the log at a physical offset, on disk and in memory."""
        path, at = self.log_file(offset)
        self.storage.overwrite(path, at, data)
