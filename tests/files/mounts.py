"""Small file systems, for faults that only a real one has. Skips the test where mounting is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """A file system mounted at ``folder`` with these arguments of ``mount``."""
    if sys.platform != "linux":
        pytest.skip("mounting needs Linux")
    folder.mkdir()
    _run_or_skip("mount", *arguments, str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def tmpfs(folder: Path, size: int) -> Iterator[Path]:
    """A file system in memory with room for ``size`` bytes."""
    with mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "penstock-test") as place:
        yield place


@contextmanager
def without_fallocate(folder: Path, size: int) -> Iterator[Path]:
    """A file system that cannot reserve blocks: ext4 with the block maps of ext3."""
    image = folder.with_suffix(".img")
    with open(image, "wb") as handle:
        handle.truncate(size)
    _run_or_skip("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^extent,^64bit,^has_journal", str(image))
    with mounted(folder, "-o", "loop", str(image)) as place:
        yield place


def _run_or_skip(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"no {command[0]} here")
    if done.returncode != 0:
        pytest.skip(f"{command[0]} is refused here: {done.stderr.strip()}")
