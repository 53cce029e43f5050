"""The ceiling: a broker that stores nothing, in C, so that a row shows what the client itself allows."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.bench.cluster import free_port, wait_listening
from penstock.bench.peer import PeerUnavailable, cache_directory

SOURCE = Path(__file__).parent / "nullbroker.c"


def build() -> Path:
    """Compile it unless that was done before, and return the program."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    program = cache_directory() / "null" / digest / "nullbroker"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise PeerUnavailable("no C compiler on the path", hint="the ceiling is a small C program")
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(".new")
        subprocess.run([compiler, "-O2", "-o", str(fresh), str(SOURCE)], check=True)
        fresh.rename(program)
    return program


class NullBroker:
    """The running program: name server and broker on one port."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def namesrv(self) -> str:
        """What clients are told."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([str(build()), str(self.port)])
        wait_listening(self.port, self._process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
