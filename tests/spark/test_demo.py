"""The Spark part of ``make demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Message, demo
from penstock.errors import SparkUnavailable
from penstock.store.opening import open_writable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_demo_counts_the_same_in_sql_and_jobs_and_writes_its_page(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the demo ends the session that it asked for
    with open_writable(tmp_path / "store") as store:
        store.put_many([Message(("orders", "payments")[n % 2], b"%d" % n) for n in range(30)])
        store.wait_visible()
    assert demo.show_spark(str(tmp_path / "store"), 30)
    shown = capsys.readouterr().out
    assert "Spark counts what the store counts." in shown
    assert "orders" in shown
    assert (tmp_path / demo.REPORT).read_text().startswith("<!doctype html>")
    assert not demo.show_spark(str(tmp_path / "store"), 31)


def test_the_demo_without_java_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(path: str, records: int) -> bool:
        raise SparkUnavailable("there is no Java on this machine", hint="install one")

    monkeypatch.setattr(demo, "show_broker", lambda folder: (True, 0))
    monkeypatch.setattr(demo, "show_spark", unavailable)
    assert demo.main([]) == 0
    assert "left out: there is no Java on this machine (install one)." in capsys.readouterr().out
