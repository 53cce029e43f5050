"""0 healthy, 1 faults found, 2 wrong usage or cannot open; with ``--json`` errors are objects on stderr."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.store.opening import open_writable

from .conftest import SMALL, Penstock, hurt_body

COMMANDS = [
    ("store", "info"),
    ("store", "verify"),
    ("store", "dump"),
    ("store", "repair"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_that_is_no_store_cannot_be_opened(
    command: tuple[str, ...], penstock: Penstock, tmp_path: Path
) -> None:
    (tmp_path / "some.txt").write_text("hello")
    outcome = penstock(*command, tmp_path, "--json")
    assert outcome.code == 2
    assert outcome.error["error"] == "NotAStore"
    assert outcome.error["file"] == str(tmp_path)
    assert outcome.out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_directory_cannot_be_opened(
    command: tuple[str, ...], penstock: Penstock, tmp_path: Path
) -> None:
    outcome = penstock(*command, tmp_path / "missing")
    assert outcome.code == 2
    assert "missing" in outcome.err
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["store", "nonsense"],
        ["store", "verify"],
        ["store", "get", ".", "t", "zero", "0"],
        ["store", "dump", ".", "--from", "x"],
        ["send", "t", "b"],
        ["tail", "t"],
        ["--nonsense"],
        ["send", "--store", "x", "t", "b", "--property", "novalue"],
        ["tail", "--store", "x", "t", "--from", "yesterday"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], penstock: Penstock) -> None:
    outcome = penstock(*arguments, "--json")
    assert outcome.code == 2
    assert set(outcome.error) >= {"error", "message"}


def test_verify_says_healthy_by_its_exit_code(penstock: Penstock, small_store: Path) -> None:
    assert penstock("store", "verify", small_store).code == 0
    hurt_body(small_store, 100)
    assert penstock("store", "verify", small_store).code == 1


def test_dump_of_a_damaged_log_goes_on_and_says_so(penstock: Penstock, small_store: Path) -> None:
    everything = penstock("store", "dump", small_store, "--json").lines
    log, at = hurt_body(small_store, 220)
    hurt = everything[220]
    outcome = penstock("store", "dump", small_store, "--json")
    assert outcome.code == 1
    assert outcome.lines == [line for line in everything if line is not hurt]
    assert outcome.error["file"] == str(log)
    assert outcome.error["offset"] == at
    assert outcome.error["physical_offset"] == hurt["physical_offset"]


def test_a_store_in_use_is_not_repaired_or_sent_to(penstock: Penstock, small_store: Path) -> None:
    hurt_body(small_store, 10)
    with open_writable(small_store, config=SMALL):
        for command in (["store", "repair", small_store], ["send", "--store", small_store, "t", "b"]):
            outcome = penstock(*command, "--json")
            assert outcome.code == 2
            assert outcome.error["error"] == "StoreLocked"


def test_the_installed_command_is_the_module(small_store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "store", "verify", str(small_store), "--json"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b'"healthy":true' in done.stdout


def test_a_reader_that_goes_away_is_no_error(small_store: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m penstock store dump {small_store} --json | head -n 1",
        shell=True,
        capture_output=True,
        check=False,
    )
    assert done.stdout.count(b"\n") == 1
    assert b"Traceback" not in done.stderr and b"BrokenPipe" not in done.stderr


def test_version_is_printed(penstock: Penstock) -> None:
    outcome = penstock("--version")
    assert (outcome.code, outcome.out.split()[0]) == (0, "penstock")


def test_help_of_every_command_is_there(penstock: Penstock) -> None:
    for command in (
        ["store"],
        ["store", "verify"],
        ["send"],
        ["tail"],
        ["config", "show"],
        ["bench", "store"],
    ):
        outcome = penstock(*command, "--help")
        assert outcome.code == 0
        assert "Usage" in outcome.out


def test_repair_mends_and_backup_copies(penstock: Penstock, small_store: Path, tmp_path: Path) -> None:
    hurt_body(small_store, 300)
    repaired = penstock("store", "repair", small_store, "--json")
    assert repaired.code == 0
    assert repaired.json["before"]["healthy"] is False and repaired.json["after"]["healthy"] is True
    copied = penstock("store", "backup", small_store, tmp_path / "copy", "--json")
    assert copied.code == 0
    assert copied.json["files"] > 5
    assert penstock("store", "verify", tmp_path / "copy", "--json").json["records"] == 600
    assert len(penstock("store", "dump", tmp_path / "copy", "--json").lines) == 599
    again = penstock("store", "backup", small_store, tmp_path / "copy", "--json")
    assert (again.code, again.error["error"]) == (2, "UsageError")


def test_an_error_nobody_foresaw_is_not_taken_for_faults(
    penstock: Penstock, small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr("penstock.store.verify.verify_store", fail)
    outcome = penstock("store", "verify", small_store, "--json")
    assert outcome.code == 2
    assert outcome.error["message"] == "surprise"


def test_verify_names_each_fault_for_programs(penstock: Penstock, small_store: Path) -> None:
    log, at = hurt_body(small_store, 50)
    outcome = penstock("store", "verify", small_store, "--json")
    assert outcome.code == 1
    (fault,) = outcome.json["faults"]
    assert (fault["file"], fault["offset"], fault["severity"]) == (str(log), at, "fault")
    assert set(fault) == {"kind", "file", "offset", "physical_offset", "length", "found", "hint", "severity"}
    assert str(log) in penstock("store", "verify", small_store).out


def test_repair_with_dry_run_changes_nothing(penstock: Penstock, small_store: Path, tmp_path: Path) -> None:
    hurt_body(small_store, 10)
    before = shutil.copytree(small_store, tmp_path / "before")
    outcome = penstock("store", "repair", small_store, "--dry-run", "--json")
    assert outcome.code == 1
    assert outcome.json["actions"]
    names = sorted(p.relative_to(before) for p in before.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(small_store) for p in small_store.rglob("*") if p.is_file())
    assert all((before / name).read_bytes() == (small_store / name).read_bytes() for name in names)
