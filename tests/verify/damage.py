"""Hurting store directories in a defined way."""

from __future__ import annotations

from pathlib import Path


def flip(file: Path, position: int, bit: int = 1) -> None:
    """Turn over bits of one byte."""
    with file.open("r+b") as opened:
        opened.seek(position)
        (value,) = opened.read(1)
        opened.seek(position)
        opened.write(bytes([value ^ bit]))


def overwrite(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
