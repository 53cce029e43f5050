"""From an argument list to an exit code. An error becomes a line for people, or an object for programs."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from penstock.errors import PenstockError

HEALTHY, FAULTY, FAILED = 0, 1, 2
INTERRUPTED = 130


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; never raises for what a user can cause."""
    from penstock.cli.app import tree

    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    # A command is one busy thread beside the store's own: let them have their turns.
    sys.setswitchinterval(0.0005)
    try:
        code = tree(given)(args=given, prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else HEALTHY
    except typer.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return HEALTHY
    except PenstockError as error:
        fail(
            as_json,
            type(error).__name__,
            error.message,
            file=error.file,
            offset=error.offset,
            hint=error.hint,
        )
    except OSError as error:
        fail(as_json, type(error).__name__, error.strerror or str(error), file=_name(error))
    except Exception as error:
        if _is_usage(error):
            # Without a text it is a bare group of commands, whose help was shown.
            if text := str(error.format_message()):  # type: ignore[attr-defined]
                fail(as_json, "UsageError", text, hint=_usage_hint(error))
        else:
            # Not foreseen. Python would exit with 1, which means "faults found" here.
            if not as_json:
                traceback.print_exc()
            fail(as_json, type(error).__name__, str(error) or "internal error", hint="please report this")
    return FAILED


def fail(as_json: bool, kind: str, message: str, **where: Any) -> None:
    """Say what went wrong on stderr."""
    where = {name: value for name, value in where.items() if value not in (None, "")}
    if as_json:
        text = json.dumps({"error": kind, "message": message, **where}, ensure_ascii=False)
    else:
        place = str(where.get("file", ""))
        if "offset" in where:
            place += f" at offset {where['offset']}"
        text = f"penstock: {place + ': ' if place else ''}{message}"
        if where.get("hint"):
            text += f"\n          {where['hint']}"
    print(text, file=sys.stderr)


def _is_usage(error: Exception) -> bool:
    # The parser's classes live in click or, in newer releases, inside of typer: look at what they can do.
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "penstock") or "penstock"
    return f"`{path} --help` shows what there is"


def _name(error: OSError) -> str | None:
    return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None


def _forget_output() -> None:
    """The reader went away: keep the interpreter from complaining about it at exit."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, sys.stdout.fileno())
    os.close(quiet)
