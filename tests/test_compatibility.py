"""``docs/compatibility.md`` is complete and true: every request, every command, a test in every row."""

from __future__ import annotations

import ast
import asyncio
import re
from functools import cache
from pathlib import Path

import pytest

from broker_admin.mqadmin_commands import FOREVER, LOCAL, RUNS
from penstock.broker import Broker
from penstock.config import BrokerConfig
from penstock.remoting import Command, RemotingClient

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
DATA = ROOT / "tests" / "data" / "wire"
REFUSED = re.compile(r"refused: (\d+)")
STATES = re.compile(r"works|sent|local|refused: \d+")


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables in a section, without their first two lines."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    assert lines, f"no table under {heading}"
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [each for each in cells if each[-1] != "test"]


REQUESTS = {int(code): (name, state, test) for code, name, state, _, test in rows("Requests")}


@cache
def names_in(path: str) -> set[str]:
    """Names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_request_code_of_rocketmq_has_a_row() -> None:
    known = [line.split() for line in (DATA / "request-codes-5.5.0.txt").read_text().splitlines()]
    assert [(code, name) for code, (name, _, _) in REQUESTS.items()] == [(int(c), n) for c, n in known]


def test_every_command_of_mqadmin_has_a_row_that_says_what_the_test_of_it_says() -> None:
    commands = (DATA / "mqadmin-commands-5.5.0.txt").read_text().split()
    stated = {row[0]: row[1] for row in rows("mqadmin")}
    assert list(stated) == commands
    refusals: dict[str, set[int]] = {FOREVER: {0}}
    for run in (each for each in RUNS if each.until == "5.5.0"):
        refusals.setdefault(run.command, set()).add(run.refused)
    said = {command: f"refused: {codes.pop()}" for command, codes in refusals.items() if 0 not in codes}
    expected = {command: "local" if command in LOCAL else said.get(command, "works") for command in commands}
    assert stated == expected
    assert refusals.keys() | set(LOCAL) == set(commands)


@pytest.mark.parametrize("heading", ["Requests", "Features", "mqadmin"])
def test_every_row_says_what_happens_and_names_a_test_that_exists(heading: str) -> None:
    for row in rows(heading):
        state, test = row[-3], row[-1]
        assert STATES.fullmatch(state), row
        path, _, name = test.strip("`").partition("::")
        assert name.startswith("test_") and name in names_in(path), row


def with_broker(folder: Path, ask: list[int]) -> tuple[set[int], dict[int, int]]:
    """The codes a broker serves, and its answers to some requests without anything in them."""

    async def main() -> tuple[set[int], dict[int, int]]:
        config = BrokerConfig(store_path=str(folder / "store"), listen_port=0, namesrv_port=0)
        async with Broker(config) as broker:
            client = RemotingClient()
            try:
                answers = {
                    code: (await client.call(broker.address, Command.request(code), 20)).code for code in ask
                }
            finally:
                await client.close()
            return set(broker.handlers), answers

    return asyncio.run(main())


def test_requests_work_or_are_refused_as_the_page_says(tmp_path: Path) -> None:
    refused = {
        code: int(found[1]) for code, (_, state, _) in REQUESTS.items() if (found := REFUSED.fullmatch(state))
    }
    served, answers = with_broker(tmp_path, list(refused))
    assert answers == refused
    works = {code for code, (_, state, _) in REQUESTS.items() if state == "works"}
    assert works - served == set()
    assert served - works == set()
