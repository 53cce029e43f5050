"""RocketMQ's Go client as a child process: a small program of ours, built once into the cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from penstock.bench.child import Child
from penstock.bench.peer import PeerUnavailable, cache_directory, locked

SOURCES = Path(__file__).parent / "go"


def go_missing() -> bool:
    """Whether there is no Go compiler on the path."""
    return shutil.which("go") is None


def build_driver() -> Path:
    """Build the driver unless that was done before, and return the program."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    home = cache_directory() / "go" / digest.hexdigest()[:16]
    program = home / "driver"
    if program.exists():
        return program
    if go_missing():
        raise PeerUnavailable("go not found on the path", hint="the Go client needs Go 1.21 or later")
    with locked(home.with_suffix(".lock")):
        if not program.exists():
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(SOURCES, home)
            built = home / "driver.new"
            command = ["go", "build", "-mod=mod", "-o", str(built), "."]
            done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise PeerUnavailable(
                    f"Go could not build the driver:\n{done.stderr[-4000:]}",
                    hint="the first build fetches rocketmq-client-go from the module proxy",
                )
            built.rename(program)
    return program


class GoClient(Child):
    """The running driver, which speaks as :class:`Child` says."""

    def __init__(self) -> None:
        # The library logs every request at its default level.
        super().__init__(
            "the Go client", [str(build_driver())], {**os.environ, "ROCKETMQ_GO_LOG_LEVEL": "error"}
        )
