"""Asks RocketMQ for the table of kept verdicts: ``PYTHONPATH=src:tests python -m filters.freeze``."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from random import Random

from filters.evaluator import Case, bit_positions, verdicts
from filters.generate import expression, properties

DATA = Path(__file__).parent.parent / "data" / "filters"
GROUPS = [f"{'G' * number}#topic-{number}" for number in range(36)] + ["组#题", "a#", "%RETRY%g#t"]


def cases(seed: int, count: int, maps: int) -> list[Case]:
    """Filters, each with properties to try it on."""
    random = Random(seed)
    return [(expression(random), [properties(random) for _ in range(maps)]) for _ in range(count)]


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        made = cases(55, 4000, 4)
        answers = verdicts("5.5.0", made, home)
        bits = bit_positions("5.5.0", GROUPS, home)
    rows = [(text, maps if found else [], found) for (text, maps), found in zip(made, answers, strict=True)]
    data = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
    # Without a time, so that the same answers give the same file.
    (DATA / "verdicts.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    (DATA / "bits.json").write_text(
        json.dumps(dict(zip(GROUPS, bits, strict=True)), ensure_ascii=False, indent=1)
    )


if __name__ == "__main__":
    main()
