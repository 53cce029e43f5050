"""Every verdict of RocketMQ's own evaluator that was kept: ``freeze.py`` makes the table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from filters.ours import native_verdicts, plain_verdicts
from penstock.broker.bloom import BloomFilter

DATA = Path(__file__).parent.parent / "data" / "filters"


def test_each_kept_case_has_the_verdict_that_rocketmq_gave() -> None:
    with gzip.open(DATA / "verdicts.jsonl.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) > 2000
    assert {word for _, _, verdicts in cases for word in verdicts or ()} == {"true", "false", "null", "error"}
    for text, maps, verdicts in cases:
        assert plain_verdicts(text, maps) == verdicts, text
        assert native_verdicts(text, maps) == verdicts, text


def test_each_group_has_the_bits_that_rocketmq_gave_it() -> None:
    bloom = BloomFilter(32, 20)
    assert (bloom.bit_count, bloom.hash_count) == (112, 3)
    table = json.loads((DATA / "bits.json").read_text())
    assert len(table) > 30
    assert {text: list(bloom.positions(text)) for text in table} == table
