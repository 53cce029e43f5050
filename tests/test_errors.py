"""Errors say what, where and what next, also after a trip through pickle."""

import pickle

import pytest

from penstock.clock import ManualClock, SystemClock
from penstock.errors import (
    ConfigError,
    CorruptFile,
    CorruptRecord,
    DataLost,
    DiskFull,
    MessageRejected,
    PenstockError,
    StoreError,
    StoreReadOnly,
)


def test_text_names_file_offset_fault_and_hint() -> None:
    error = CorruptRecord("/s/commitlog/0", 42, found="magic 0", hint="run `penstock store repair`")
    assert str(error) == "/s/commitlog/0 at offset 42: corrupt record: magic 0 (run `penstock store repair`)"
    assert (error.file, error.offset, error.found) == ("/s/commitlog/0", 42, "magic 0")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PenstockError("it broke"), "it broke"),
        (StoreError("it broke", offset=7), "offset 7: it broke"),
        (CorruptFile("a", found="3 bytes"), "a: corrupt file: 3 bytes"),
        (DiskFull("no space", file="a", hint="free some"), "a: no space (free some)"),
        (DataLost("gone", [("t", 1, 5, 9)], hint="h"), "gone: t/1 [5, 9) (h)"),
        (MessageRejected("MESSAGE_ILLEGAL", "no body"), "MESSAGE_ILLEGAL: no body"),
    ],
)
def test_text_leaves_out_what_is_not_known(error: PenstockError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    "error",
    [
        CorruptRecord("f", 1, found="x", hint="h"),
        DataLost("gone", [("t", 1, 5, 9)]),
        MessageRejected("S", "r"),
        ConfigError("m", key="k", source="s"),
        StoreReadOnly("m", cause=OSError(5, "I/O")),
    ],
)
def test_error_survives_pickling(error: PenstockError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert {k: str(v) for k, v in vars(copy).items()} == {k: str(v) for k, v in vars(error).items()}


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic()) == (1000, 0.0)
    clock.advance(1500)
    assert (clock.now_ms(), clock.monotonic()) == (2500, 1.5)
    clock.set(10)
    assert (clock.now_ms(), clock.monotonic()) == (10, 1.5)
    with pytest.raises(ValueError, match="forwards"):
        clock.advance(-1)


def test_system_clock_counts_milliseconds_of_this_century() -> None:
    clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < 4_000_000_000_000
    assert clock.monotonic() <= clock.monotonic()
