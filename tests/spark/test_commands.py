"""``penstock spark``: every job is a command, and all of them take the same options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli import main
from penstock.cli.sparkframe import settings_of
from penstock.cli.sparking import app
from penstock.errors import UsageError

COMMANDS: dict[str, Callable[..., Any]] = {
    str(command.name): command.callback for command in app.registered_commands if command.callback
}
WRITING = {"rebuild", "export", "import", "replay", "compact"}


def test_every_job_is_a_command() -> None:
    assert set(COMMANDS) == {"verify", "stats", "trace"} | WRITING


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_takes_a_master_and_json_and_a_dry_run_where_it_writes(name: str) -> None:
    taken = set(inspect.signature(COMMANDS[name]).parameters)
    assert {"master", "conf", "as_json"} <= taken
    assert ("dry_run" in taken) == (name in WRITING)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_explains_itself_without_spark(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", name, "--help"]) == 0
    assert "--master" in capsys.readouterr().out


def test_a_setting_without_a_value_is_refused() -> None:
    assert settings_of("--conf", ["spark.a=1", "spark.b=x=y"]) == {"spark.a": "1", "spark.b": "x=y"}
    with pytest.raises(UsageError, match=r"--conf 'spark.a' is no setting"):
        settings_of("--conf", ["spark.a"])
