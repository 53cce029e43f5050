"""Which way imports go, and what importing does: nothing that a program would notice."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "penstock"

# Room -> rooms it may import, beside itself. The upper rooms know the lower ones, never the other way round.
BASE = {"errors", "config", "clock"}
BELOW_STORE = BASE | {"message", "format", "_native", "files"}
ANYTHING = {"*"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "config": {"errors"},
    "message": {"errors"},
    "format": {"errors", "message"},
    "filters": {"errors", "message", "_native"},
    "_native": set(),
    "files": {"_native", *BASE},
    "store": BELOW_STORE,
    "remoting": {"message", "_native", *BASE},
    "security": {"remoting", "message", *BASE},
    "namesrv": BELOW_STORE | {"store", "remoting", "security"},
    "broker": BELOW_STORE | {"filters", "store", "remoting", "security", "namesrv"},
    "client": {"remoting", "message", "format", "filters", "_native", *BASE},
    "spark": {"format", "_native", "files", "store", "client", "message", *BASE},
    "cli": ANYTHING,
    "console": ANYTHING,
    "testing": ANYTHING,
    "bench": ANYTHING,
    "demo": ANYTHING,
    "__main__": ANYTHING,
    "__init__": ANYTHING,  # the public face: it only re-exports
}
HEAVY = ["pyarrow", "pyspark", "matplotlib", "numpy", "pandas", "py4j", "prometheus_client"]


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].split(".")[0]


def imported_modules(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything of ours that a source imports, ``cimport`` included."""
    if path.suffix in (".pyx", ".pxd"):
        yield from cython_imports(text)
        return
    package = ["penstock", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def cython_imports(text: str) -> Iterator[tuple[int, str]]:
    pattern = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+(.+))$")
    for number, line in enumerate(text.splitlines(), 1):
        if found := pattern.match(line.split("#")[0].rstrip()):
            module, names, plain = found.groups()
            if plain:
                yield from ((number, name.split()[0]) for name in plain.split(",") if name.strip())
            elif not module.startswith("."):
                yield number, f"{module}.{names.split(',')[0].strip('( ')}"


def violations(path: Path, text: str) -> list[str]:
    room = room_of(path)
    if room not in MAY_IMPORT:
        return [f"{path.relative_to(SOURCE)}: {room} is in no row of the table"]
    allowed = MAY_IMPORT[room]
    found = []
    for line, module in imported_modules(path, text):
        parts = module.split(".")
        if parts[0] != "penstock" or allowed is ANYTHING:
            continue
        # A name taken from the face itself (`from penstock import open_store`) is an import of the top room.
        target = parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "__init__"
        if target != room and target not in allowed:
            found.append(f"{path.relative_to(SOURCE)}:{line}: {room} may not import {module}")
    return found


def test_imports_go_one_way() -> None:
    sources = [path for kind in ("*.py", "*.pyx", "*.pxd") for path in sorted(SOURCE.rglob(kind))]
    assert len(sources) > 10
    assert [fault for path in sources for fault in violations(path, path.read_text())] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("message/a.py", "from penstock.store import commitlog"),
        ("message/a.py", "import penstock.files.disk"),
        ("config/a.py", "from penstock import format"),
        ("format/a.py", "from ..files import disk"),
        ("format/a.py", "def f():\n    from penstock._native import record"),
        ("files/a.py", "from penstock import open_store"),
        ("store/a.py", "from penstock.cli import main"),
        ("_native/a.pyx", "from penstock.errors import StoreError"),
        ("_native/a.pyx", "cimport penstock.files.disk"),
        ("_native/a.pxd", "from penstock.format cimport record"),
        ("novelty/a.py", ""),
    ],
)
def test_import_of_an_upper_room_is_noticed(name: str, text: str) -> None:
    assert len(violations(SOURCE / name, text)) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("store/a.py", "from penstock.files.disk import DiskStorage\nfrom .commitlog import CommitLog"),
        ("_native/a.pyx", "from penstock._native.mapping cimport Mapping\nfrom libc.stdint cimport int64_t"),
        ("cli/a.py", "from penstock.broker import Broker"),
        ("errors.py", "from os import fspath"),
    ],
)
def test_import_of_a_lower_room_is_fine(name: str, text: str) -> None:
    assert violations(SOURCE / name, text) == []


def run(code: str) -> object:
    """What a fresh interpreter prints, as JSON."""
    command = [sys.executable, "-c", f"import json, sys\nsys.path.insert(0, {str(SOURCE.parent)!r})\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_starts_no_thread_and_opens_no_file() -> None:
    code = """
import os, threading
def descriptors():
    return sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else []
def tasks():
    return len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1
before = descriptors()
import penstock
for name in sorted(dir(penstock)):
    getattr(penstock, name)
print(json.dumps([threading.active_count(), tasks(), descriptors() == before]))
"""
    assert run(code) == [1, 1, True]


def test_help_imports_nothing_heavy() -> None:
    if importlib.util.find_spec("penstock.cli") is None:
        pytest.skip("no commands yet")
    code = f"""
import contextlib, io
from penstock.cli import main
sys.argv = ["penstock", "--help"]
text = io.StringIO()
with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
    main()
heavy = [name for name in {HEAVY} if name in sys.modules]
print(json.dumps([heavy, "penstock" in text.getvalue().lower()]))
"""
    assert run(code) == [[], True]


def test_a_broker_is_started_without_the_other_commands() -> None:
    code = """
import contextlib, io
from penstock.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["up", "--help"])
wanted = ("penstock.cli.up", "penstock.cli.topics", "penstock.cli.sparking", "penstock.bench")
print(json.dumps([name in sys.modules for name in wanted]))
"""
    assert run(code) == [True, False, False, False]
