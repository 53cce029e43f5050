"""RocketMQ's own evaluator, run over many filters at once (needs Java and Maven)."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable
from pathlib import Path

from penstock.bench.peer import Version, build, java_command, java_environment
from penstock.message.properties import encode_properties

SOURCE = Path(__file__).with_name("Evaluator.java")
Case = tuple[str, list[dict[str, str]]]
Verdicts = list[str] | None
"""``true``, ``false``, ``null`` or ``error`` for each map of properties; None for what is no filter."""


def _ask(version: Version, lines: list[str], home: str) -> list[str]:
    options = ("-Xmx512m", "-XX:+UseSerialGC", f"-Drocketmq.home.dir={home}")
    command = java_command(build(version, "client-pom.xml"), str(SOURCE), options, home)
    done = subprocess.run(
        command,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=java_environment(),
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stderr[-2000:]
    return answers


def _line(kind: str, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return f"{kind} {base64.b64encode(data).decode()}"


def verdicts(version: Version, cases: Iterable[Case], home: str) -> list[Verdicts]:
    """What RocketMQ says of each case."""
    given = list(cases)
    lines = [
        line
        for text, maps in given
        for line in (_line("E", text), *(_line("P", encode_properties(each)) for each in maps))
    ]
    answers = iter(_ask(version, lines, home))
    found: list[Verdicts] = []
    for _, maps in given:
        compiled = next(answers) == "ok"
        results = [next(answers) for _ in maps]
        found.append(results if compiled else None)
    return found


def bit_positions(version: Version, texts: list[str], home: str) -> list[list[int]]:
    """The bits that RocketMQ's bloom filter gives each text."""
    answers = _ask(version, [_line("B", text) for text in texts], home)
    return [[int(number) for number in answer.strip("[]").split(",")] for answer in answers]
