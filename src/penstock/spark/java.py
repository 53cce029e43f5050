"""The Java that Spark runs on: which one it is, and whether it will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from penstock.errors import SparkUnavailable

OLDEST = 17
HINT = (
    f"install a Java {OLDEST} runtime (Debian: openjdk-17-jre-headless; Fedora: java-17-openjdk-headless;"
    " macOS: brew install openjdk@17), or point JAVA_HOME at one"
)


class Java(NamedTuple):
    """A Java runtime: its executable and its whole version, as in ``17.0.15``."""

    executable: str
    version: str

    @property
    def major(self) -> int:
        """17 of ``17.0.15``; 8 of ``1.8.0_372``, which is how Java named itself before 9."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java() -> Java:
    """The Java for Spark: ``JAVA_HOME``'s, else the one on the path, else Homebrew's.

    Raises SparkUnavailable when there is none, when it doesn't run or when it is too old for Spark.
    """
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home) / "bin" / "java") if home else shutil.which("java") or _brewed()
    if executable is None:
        raise SparkUnavailable("there is no Java on this machine, and Spark runs on it", hint=HINT)
    if not os.access(executable, os.X_OK):
        raise SparkUnavailable(f"JAVA_HOME is {home}, and there is no Java in it", file=executable, hint=HINT)
    java = Java(executable, _released_version(executable) or _told_version(executable))
    if java.major < OLDEST:
        raise SparkUnavailable(
            f"this is Java {java.version}, and Spark needs {OLDEST} or newer", file=executable, hint=HINT
        )
    return java


def _brewed() -> str | None:
    """Homebrew's Java, which it puts on no path."""
    usual = ("/opt/homebrew/opt/openjdk@17/bin/java", "/usr/local/opt/openjdk@17/bin/java")
    return next((path for path in usual if os.access(path, os.X_OK)), None)


def _released_version(executable: str) -> str | None:
    """The version in the file beside the runtime: reading it costs nothing, a start of Java costs 0.2 s."""
    release = Path(executable).resolve().parent.parent / "release"
    if not release.is_file():
        return None
    found = re.search(r'^JAVA_VERSION="(\d[^"]*)"', release.read_text(errors="replace"), re.MULTILINE)
    return found.group(1) if found else None


def _told_version(executable: str) -> str:
    try:
        done = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(f"Java does not start: {error}", file=executable, hint=HINT) from error
    found = re.search(r'version "(\d[^"]*)"', done.stderr + done.stdout)
    if done.returncode or not found:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SparkUnavailable(
            f"Java does not start: {said[0] if said else f'exit code {done.returncode}'}",
            file=executable,
            hint=HINT,
        )
    return found.group(1)
