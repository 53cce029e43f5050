"""Appends to a store: ``producer.py STORE``. Reads ``first end`` lines, says ``done`` for each."""

from __future__ import annotations

import sys
from pathlib import Path

from spark.stream.stores import opened, put


def main(store: str) -> None:
    with opened(Path(store)) as writer:
        print("open", flush=True)
        for line in sys.stdin:
            first, end = map(int, line.split())
            put(writer, range(first, end))
            print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
