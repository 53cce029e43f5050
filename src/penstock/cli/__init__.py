"""The ``penstock`` command. Nothing but the command line itself is imported before a command runs."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 1 faults found, 2 wrong usage or cannot do it."""
    from penstock.cli.run import run

    return run(arguments)
