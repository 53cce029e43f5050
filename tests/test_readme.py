"""What the README shows works when it is pasted, and what the documentation points to is there."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import StoreConfig

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
# Small files for the commands: what they do is the same, and a shared machine's disk is spared.
SMALL = {
    "PENSTOCK_MAPPED_FILE_SIZE_COMMIT_LOG": "1MiB",
    "PENSTOCK_MAX_HASH_SLOT_NUM": "1000",
    "PENSTOCK_MAX_INDEX_NUM": "4000",
}


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found
    return found


def run(command: list[str], folder: Path, text: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        input=text,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_examples_work_when_pasted(tmp_path: Path) -> None:
    first, columns, _ = blocks("python")
    assert len(first.splitlines()) <= 10
    shown = run([sys.executable, "-"], tmp_path, first)
    assert shown.splitlines() == [
        "PUT_OK 7F00000100002A9F0000000000000000",
        "0 coffee b'two espressos'",
        "b'two espressos'",
    ]
    pytest.importorskip("pyarrow")
    assert "'keys': 'sensor-0', 'body': b'0'" in run([sys.executable, "-"], tmp_path, columns)


def test_the_commands_work_when_pasted(tmp_path: Path) -> None:
    _, commands = blocks("sh")
    script = f'set -euo pipefail\npenstock() {{ "{sys.executable}" -m penstock "$@"; }}\n{commands}'
    shown = run(["bash", "-s"], tmp_path, script, **SMALL)
    assert "a flat white" in shown
    assert "healthy" in shown
    assert shown.count('"topic":"numbers"') == 3


@pytest.mark.spark
@pytest.mark.cluster  # six sessions, one after another
def test_the_spark_part_works_when_pasted(tmp_path: Path) -> None:
    first, columns, spark = blocks("python")
    commands, _ = blocks("sh")
    run([sys.executable, "-"], tmp_path, first)
    run([sys.executable, "-"], tmp_path, columns)
    shown = run([sys.executable, "-"], tmp_path, spark)
    assert "two espressos" in shown
    assert shown.splitlines()[-1] == "[('sensor-0', 4), ('sensor-1', 3), ('sensor-2', 3)]"
    script = f'set -euo pipefail\npenstock() {{ "{sys.executable}" -m penstock "$@"; }}\n{commands}'
    shown = run(["bash", "-s"], tmp_path, script)
    assert "readings" in shown
    assert "healthy" in shown
    assert (tmp_path / "stats.html").exists()
    assert list((tmp_path / "demo-parquet").rglob("*.parquet"))


def test_every_option_of_the_source_is_described() -> None:
    from penstock.spark.options import OPTIONS
    from penstock.spark.writeoptions import ACCEPTED
    from penstock.spark.writeoptions import OPTIONS as WRITING

    pages = ("spark.md", "spark-network.md")
    described = "".join((ROOT / "docs" / page).read_text() for page in pages)
    assert [name for name in (*OPTIONS, *WRITING, *ACCEPTED) if f"`{name}`" not in described] == []


def test_every_job_is_described() -> None:
    from penstock.cli.sparking import app

    described = (ROOT / "docs" / "spark.md").read_text()
    jobs = [str(command.name) for command in app.registered_commands]
    assert jobs
    assert [name for name in jobs if f"| `{name}` |" not in described] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    missing = [link for link in links if not (ROOT / document).parent.joinpath(link).exists()]
    assert missing == []


def test_every_setting_is_described_with_its_default_and_whether_it_does_anything() -> None:
    described = (ROOT / "docs" / "config.md").read_text()
    in_use, _, idle = described.partition("## Without effect")
    code = "".join(
        path.read_text() for path in (ROOT / "src" / "penstock").rglob("*.py") if path.parent.name != "config"
    )
    # Two settings are read in another form.
    code += ".message_delay_level" * code.count(".delay_levels_ms")
    code += ".delete_when" * code.count(".delete_hours")
    for field in dataclasses.fields(StoreConfig):
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        row = f"| `{field.name}` | `{default}` |"
        assert row in (in_use if f".{field.name}" in code else idle), row
