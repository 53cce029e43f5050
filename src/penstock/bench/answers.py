"""The loop of a child process that answers JSON lines (the other end of :mod:`penstock.bench.child`)."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from penstock.bench.machine import rss_anon

Answer = dict[str, Any]


def answer_commands(answer: Callable[[Answer], Answer]) -> None:
    """Answer until the input ends. What else writes to standard output goes to standard error."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            try:
                made = {**answer(json.loads(line)), "ok": True}
            except Exception as error:
                made = {"ok": False, "error": repr(error), "trace": traceback.format_exc()}
            answers.write(json.dumps({**made, "rss_anon": rss_anon()}) + "\n")
            answers.flush()
