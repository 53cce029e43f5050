"""The parts of a benchmark that can be wrong without a benchmark."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.bench import peer, store
from penstock.bench.child import Child, ChildFailed
from penstock.bench.copying import copy_store
from penstock.bench.logs import write_log
from penstock.bench.machine import bare_rate, filesystem, fingerprint, rss_anon, sync_latency
from penstock.bench.report import conditions, quantity, table
from penstock.bench.row import Row
from penstock.bench.session import Scale, Session
from penstock.bench.sqlite import put_rate
from penstock.bench.work import Work

ANSWERER = """
import json, sys
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "die":
        sys.exit(3)
    ok = command["do"] == "echo"
    print(json.dumps({"ok": ok, "said": command.get("text"), "error": "no", "rss_anon": 7}), flush=True)
"""


def answerer() -> Child:
    return Child("answerer", [sys.executable, "-c", ANSWERER], os.environ)


def test_ratio_says_how_much_better_ours_is_whichever_way_the_unit_counts() -> None:
    rate = Row("a", "a", "messages/s", 30.0, 20.0, 1.3)
    time = Row("b", "b", "s", 2.0, 8.0, 5.0, lower_is_better=True)
    assert (rate.ratio, rate.reached) == (1.5, True)
    assert (time.ratio, time.reached) == (4.0, False)


def test_row_without_a_peer_compares_nothing() -> None:
    row = Row("a", "a", "messages/s", 30.0, None, 1.3).to_json()
    assert (row["ratio"], row["reached"], row["at_least"]) == (None, None, 1.3)


def test_every_key_has_32_messages() -> None:
    work = Work(n=640)
    keys = [work.keys(index) for index in range(work.n)]
    assert {keys.count(key) for key in keys} == {32}


def test_turns_alternate_and_the_first_one_changes(tmp_path: Path) -> None:
    order: list[str] = []
    session = Session(tmp_path, Scale(rounds=2), True, lambda text: None)
    figures = session.compare("work", lambda side: float(len(order.append(side) or order)))
    assert order == ["ours", "peer", "peer", "ours"]
    assert figures == {"ours": [1.0, 4.0], "peer": [2.0, 3.0]}


def test_answer_of_a_child_comes_back_and_its_memory_is_remembered() -> None:
    with answerer() as child:
        assert child.ask("echo", text="héllo")["said"] == "héllo"
        assert child.peak_rss_anon >= 7


def test_failure_and_end_of_a_child_are_errors() -> None:
    with answerer() as child:
        with pytest.raises(ChildFailed, match="`refuse` failed: no"):
            child.ask("refuse")
        with pytest.raises(ChildFailed, match="ended during `die` with code 3"):
            child.ask("die")


def test_missing_java_is_said_with_what_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    assert peer.missing_tools() == ["java", "mvn"]
    with pytest.raises(peer.PeerUnavailable, match=r"java and mvn not found.*Maven 3\.8"):
        peer.build("5.5.0")


def test_java_sources_are_package_data() -> None:
    assert (peer.SOURCES / "pom.xml").is_file()
    assert {path.name for path in peer.SOURCES.rglob("Store*.java")} >= {
        "StorePeer.java",
        "StoreInterop.java",
    }


def test_copy_keeps_holes_and_reserved_blocks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    with (source / "folder" / "sparse").open("wb") as sparse:
        sparse.truncate(64 << 20)
        os.pwrite(sparse.fileno(), b"data", 32 << 20)
    with (source / "reserved").open("wb") as reserved:
        os.posix_fallocate(reserved.fileno(), 0, 1 << 20)
        os.pwrite(reserved.fileno(), b"head", 0)
    copy_store(source, tmp_path / "copy")
    for name in ("folder/sparse", "reserved"):
        before, after = source / name, tmp_path / "copy" / name
        assert after.read_bytes() == before.read_bytes()
        assert after.stat().st_blocks == before.stat().st_blocks


@pytest.mark.parametrize(("synchronous", "per_commit"), [("FULL", 1), ("FULL", 64), ("OFF", 1)])
def test_sqlite_baseline_holds_every_message(tmp_path: Path, synchronous: str, per_commit: int) -> None:
    path = tmp_path / "db"
    assert put_rate(path, Work(100), synchronous=synchronous, per_commit=per_commit) > 0  # type: ignore[arg-type]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT unique_key) FROM message").fetchone() == (
            100,
            100,
        )


def test_machine_is_described(tmp_path: Path) -> None:
    found = fingerprint(tmp_path)
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 1 << 20
    assert found["filesystem"] == filesystem(tmp_path) != "unknown"
    assert rss_anon() > 0
    latency = sync_latency(tmp_path, count=5)
    assert 0 < latency["p50_us"] <= latency["p99_us"]
    assert bare_rate(tmp_path, size=100, count=8, group=4) > 0
    assert list(tmp_path.iterdir()) == []


def test_report_is_drawn_for_people(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from penstock.bench.plot import draw

    rows = [
        Row("a", "put", "messages/s", 4e5, 2e5, 1.3).to_json(),
        Row("b", "open", "s", 0.05, None, 5.0, lower_is_better=True).to_json(),
    ]
    report = {
        "rows": rows,
        "machine": dict(fingerprint(tmp_path)),
        "fdatasync": {"p50_us": 60.0, "p99_us": 100.0},
        "load_average_before": (1.5, 1.0, 1.0),
        "load_average_after": (1.0, 1.0, 1.0),
        "stolen": 0.31,
        "rounds": 3,
    }
    assert table(report).row_count == 2
    assert quantity(4e5, "messages/s") == "400 k/s"
    assert quantity(0.05, "s") == "50.0 ms"
    assert any("busy" in line for line in conditions(report))
    assert any("The host kept 31%" in line for line in conditions(report))
    draw(report, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def rows_until(error: BaseException | None) -> Callable[..., Iterator[Row]]:
    def group(session: Session, wanted: Callable[[str], bool]) -> Iterator[Row]:
        yield Row("a", "put", "messages/s", 4e5, 2e5, 1.3)
        if error is not None:
            raise error

    return group


@pytest.mark.parametrize(
    ("error", "keys", "told"),
    [
        (None, 2, []),
        (ChildFailed("it ended"), 2, ["group: it ended"]),
        (KeyboardInterrupt(), 1, ["interrupted"]),
    ],
)
def test_figures_outlive_what_ends_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException | None, keys: int, told: list[str]
) -> None:
    monkeypatch.setattr(store, "_GROUPS", (rows_until(error), rows_until(None)))
    report = store.run(tmp_path, peer="none", scale=Scale.quick(), patterns=[], progress=lambda text: None)
    assert len(report["rows"]) == keys
    assert (report["complete"], report["failures"]) == (error is None, told)
    assert list(tmp_path.iterdir()) == []
    assert any("Not everything" in line for line in conditions(report)) == (error is not None)


def test_shared_log_can_be_opened_as_it_was_killed_again_and_again(tmp_path: Path) -> None:
    with Session(tmp_path, Scale.quick(), False, lambda text: None) as session:
        log = write_log(session, "ours", [Work(100, batch=10), Work(28, first=100)], checkpoint=True)
        assert len(log.memory) == 2
        for _ in range(2):
            log.restore()
            assert (log.folder / "abort").exists()
            with session.ours() as child:
                child.ask("open", dir=str(log.folder), config=session.config("async"))
                assert child.ask("get")["count"] == 128
                child.ask("close")
            assert not (log.folder / "abort").exists()
