"""RocketMQ's own Java store as a child process.

The Java side is a small Maven project that lies beside this module as package data. It is built once into a
cache folder (``$PENSTOCK_CACHE``, else ``~/.cache/penstock``), whose name is made from the sources, and then
started as ``java -Xms4g -Xmx4g -XX:+UseG1GC``. One JSON object a line goes in, one comes out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from penstock.bench.child import Child
from penstock.errors import PenstockError

Version = Literal["5.5.0", "4.9.7"]
VERSIONS: tuple[Version, ...] = ("5.5.0", "4.9.7")
_PROFILES: Mapping[Version, str] = {"5.5.0": "v5", "4.9.7": "v4"}
Project = Literal["pom.xml", "client-pom.xml"]

SOURCES = Path(__file__).parent / "java"

# RocketMQ reaches into the JDK to unmap files; since Java 17 each package of it has to be opened by name.
_OPENED = (
    "java.nio",
    "sun.nio.ch",
    "java.lang",
    "java.lang.reflect",
    "java.util",
    "jdk.internal.ref",
    "jdk.internal.misc",
)
BENCH_OPTIONS = ("-Xms4g", "-Xmx4g", "-XX:+UseG1GC")
INTEROP_OPTIONS = ("-Xms64m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class PeerUnavailable(PenstockError):
    """Java or Maven is missing, or the driver could not be built."""


def cache_directory() -> Path:
    """Where built drivers live."""
    given = os.environ.get("PENSTOCK_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "penstock"


def missing_tools() -> list[str]:
    """Which of ``java`` and ``mvn`` are not on the path."""
    return [tool for tool in ("java", "mvn") if shutil.which(tool) is None]


def _require(*tools: str) -> None:
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        raise PeerUnavailable(
            f"{' and '.join(absent)} not found on the path",
            hint="the peer needs a JDK of version 17 and Maven 3.8 or later; `--peer none` runs without it",
        )


def _fingerprint(version: Version, project: Project) -> str:
    digest = hashlib.sha256(f"{version} {project}".encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file() and "target" not in path.relative_to(SOURCES).parts:
            digest.update(str(path.relative_to(SOURCES)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One builder at a time, whoever the others are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _maven(home: Path, version: Version, project: Project, class_path: Path) -> None:
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={class_path}"]
    command = ["mvn", "-B", "-q", "-f", project, f"-P{_PROFILES[version]}", *goals]
    last = ""
    # Offline first: it works, and quicker, whenever the dependencies were fetched before.
    for extra in (["-o"], []):
        done = subprocess.run([*command, *extra], cwd=home, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        last = done.stdout + done.stderr
    raise PeerUnavailable(
        f"Maven could not build the driver for RocketMQ {version}:\n{last[-4000:]}",
        hint="the first build fetches RocketMQ and its dependencies from Maven Central",
    )


def build(version: Version = "5.5.0", project: Project = "pom.xml") -> str:
    """Build the driver unless that was done before, and return its class path."""
    home = cache_directory() / "peer" / f"{version}-{_fingerprint(version, project)}"
    ready = home / "classpath"
    if not ready.exists():
        _require("java", "mvn")
        with locked(home.with_suffix(".lock")):
            if not ready.exists():
                shutil.rmtree(home, ignore_errors=True)
                shutil.copytree(SOURCES, home, ignore=shutil.ignore_patterns("target"))
                _maven(home, version, project, home / "dependencies")
                # Written last: its presence says that everything before it succeeded.
                dependencies = (home / "dependencies").read_text().strip()
                ready.write_text(f"{home / 'target' / 'classes'}:{dependencies}")
    class_path = ready.read_text()
    if any(not Path(entry).exists() for entry in class_path.split(":")):
        shutil.rmtree(home, ignore_errors=True)
        return build(version, project)
    return class_path


def java_command(class_path: str, main: str, options: tuple[str, ...], home: str) -> list[str]:
    """The command line of a Java program of RocketMQ's or over it; ``home`` takes the logs it insists on."""
    _require("java")
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    exported = [f"--add-exports=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    encoding = ["-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8"]
    return ["java", *options, *opened, *exported, *encoding, f"-Duser.home={home}", "-cp", class_path, main]


def java_environment() -> dict[str, str]:
    """File names with letters beyond ASCII need a UTF-8 locale whatever the caller's is."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


class Peer(Child):
    """A running Java program, which speaks as :class:`Child` says."""

    def __init__(
        self,
        program: Literal["StorePeer", "StoreInterop", "ClientDriver"] = "StorePeer",
        version: Version = "5.5.0",
        options: tuple[str, ...] = BENCH_OPTIONS,
    ) -> None:
        class_path = build(version, "client-pom.xml" if program == "ClientDriver" else "pom.xml")
        self._home = tempfile.TemporaryDirectory(prefix="penstock-peer-")
        command = java_command(class_path, f"penstock.bench.{program}", options, self._home.name)
        super().__init__(f"RocketMQ {version}", command, java_environment())

    def close(self) -> None:
        """End the JVM. Harmless when it ended before."""
        super().close()
        self._home.cleanup()
