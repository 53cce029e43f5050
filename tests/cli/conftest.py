"""Running the command inside of the test process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from commands import Outcome, run_command
from golden_store import GoldenStore, unpack
from penstock import Message, StoreConfig
from penstock.store.opening import open_writable

SMALL = StoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=6000,
    max_hash_slot_num=100,
    max_index_num=400,
    flush_disk_type="async",
)


Penstock = Callable[..., Outcome]


@pytest.fixture
def penstock(capfdbinary: pytest.CaptureFixture[bytes]) -> Penstock:
    """Run a command line: ``penstock("store", "verify", path, "--json")``."""

    return partial(run_command, capfdbinary)


def hurt_body(store: Path, number: int) -> tuple[Path, int]:
    """Flip a bit in the body of the record with this number; file and position of the record."""
    from penstock.store.directory import StoreDirectory
    from penstock.store.scan import LogScanner

    directory = StoreDirectory(None, str(store))
    message = next(m for n, m in enumerate(LogScanner(directory).messages()) if n == number)
    file = next(f for f in directory.log_files if f.holds(message.physical_offset))
    at = message.physical_offset - file.begin
    data = bytearray(Path(file.path).read_bytes())
    data[at + bytes(message.raw).index(message.body)] ^= 1
    Path(file.path).write_bytes(data)
    return Path(file.path), at


@pytest.fixture
def golden(tmp_path: Path) -> Callable[..., GoldenStore]:
    """Unpack a directory written by RocketMQ."""
    return lambda case, **options: unpack(case, tmp_path, **options)


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    """A closed store of our own: 600 messages of two topics over several files."""
    path = tmp_path / "small"
    with open_writable(path, config=SMALL) as store:
        store.put_many(
            [
                Message(
                    ("orders", "payments")[n % 2],
                    f"body {n}".encode() * 20,
                    tags=("red", "blue")[n % 2],
                    keys=f"key-{n} all",
                    queue_id=n % 3,
                    properties={"number": str(n)},
                )
                for n in range(600)
            ]
        )
    return path
