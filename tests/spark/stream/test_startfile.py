"""The start of a stream is kept the first time and wins ever after."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CorruptFile, StoreError, UsageError
from penstock.spark.offsets import StreamOffset
from penstock.spark.startfile import StartFile

FIRST = StreamOffset.initial({("t", 0): 15})


def test_first_start_wins(tmp_path: Path) -> None:
    assert StartFile(str(tmp_path / "state"), "/s").load() is None
    assert StartFile(str(tmp_path / "state"), "/s").keep(FIRST) == FIRST
    again = StartFile(f"file://{tmp_path}/state", "/s")
    assert again.load() == FIRST
    assert again.keep(StreamOffset.initial({("t", 0): 30})) == FIRST


def test_start_of_another_store_is_refused(tmp_path: Path) -> None:
    StartFile(str(tmp_path), "/s").keep(FIRST)
    with pytest.raises(UsageError, match="/s, not /other"):
        StartFile(str(tmp_path), "/other").load()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"v":2}'])
def test_damaged_start_is_an_error_not_a_new_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "start.json").write_bytes(content)
    with pytest.raises(CorruptFile, match="checkpoint"):
        StartFile(str(tmp_path), "/s").keep(FIRST)


def test_start_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="stateLocation"):
        StartFile(str(tmp_path / "file" / "state"), "/s").keep(FIRST)
