"""The commands ``penstock spark stats``, ``compact`` and ``trace``, as people and programs see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from penstock import Message
from penstock.cli import sparkframe
from penstock.cli.sparking import app
from penstock.errors import NotAStore, UsageError
from penstock.store.verify import verify_store

from .stores import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in the session that is there."""

    @contextmanager
    def running(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(sparkframe, "spark_session", running)

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return written(tmp_path / "s", [Message("t", b"%d" % n, keys=f"k{n % 3}", tags="x") for n in range(30)])


def test_stats_prints_a_table_and_writes_the_page(run: Any, store: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = run("stats", str(store), "--html", str(page), "--disk-gib", "1")
    for words in ("30 of 1 topics", "hot keys", "k0", "full in"):
        assert words in text
    assert "<svg" in page.read_text(encoding="utf-8")


def test_stats_for_programs(run: Any, store: Path) -> None:
    found = json.loads(run("stats", str(store), "--json"))
    assert (found["records"], found["topics"][0]["topic"], found["topics"][0]["rows"]) == (30, "t", 30)
    assert [key["rows"] for key in found["topics"][0]["hot_keys"]] == [10, 10, 10]


def test_compact_says_what_it_would_do_and_does_it(run: Any, store: Path, tmp_path: Path) -> None:
    assert "would keep 3 of 30 records" in run("compact", str(store), "--topic", "t", "--dry-run")
    target = tmp_path / "c"
    assert f"the store is {target}" in run("compact", str(store), str(target), "--topic", "t")
    assert verify_store(str(target)).records == 3
    found = json.loads(run("compact", str(store), str(tmp_path / "d"), "--topic", "t", "--json"))
    assert (found["records_after"], found["keys"], found["target"]) == (3, 3, str(tmp_path / "d"))


def test_trace_tells_each_step(run: Any, store: Path) -> None:
    text = run("trace", str(store), "k1")
    assert text.count("stored: consumers of t can read it") == 10
    assert "10 steps of 10 messages, found by index" in text
    found = json.loads(run("trace", str(store), "k1", "--via", "scan", "--json"))
    assert (found["via"], len(found["steps"])) == ("scan", 10)


def test_trace_of_an_unknown_key_fails(run: Any, store: Path) -> None:
    assert "0 steps of 0 messages" in run("trace", str(store), "nobody", code=1)


@pytest.mark.parametrize("command", ["verify", "stats", "rebuild", "compact", "trace"])
def test_a_job_on_files_that_is_given_brokers_says_what_it_needs(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(sparkframe, "spark_session", start)
    arguments = [command, "namesrv://127.0.0.1:9876", *(["key"] if command == "trace" else [])]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, UsageError)
    assert "files of a store" in error.message
    assert "store directory" in error.hint and "penstock spark export" in error.hint


@pytest.mark.parametrize("command", ["verify", "stats", "rebuild", "export", "compact", "replay"])
def test_a_wrong_path_is_told_before_spark_starts(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(sparkframe, "spark_session", start)
    arguments = [
        command,
        str(tmp_path / "nowhere"),
        *([str(tmp_path / "out")] if command == "export" else []),
    ]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, NotAStore)
