"""Limits hold, and every refusal and administration leaves one line."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from broker.talking import send_fields
from penstock.security.audit import Audit, logger
from penstock.security.limits import TokenBucket
from security.people import ADMIN, ALICE, MALLORY, ask, guarded


def test_bucket_lets_through_its_rate() -> None:
    bucket = TokenBucket(10, 0.0)
    assert [bucket.take(0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert bucket.take(0.11)
    assert not bucket.take(0.11)
    assert sum(bucket.take(100.0) for _ in range(50)) == 10


def test_requests_beyond_the_rate_are_answered_busy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        guarded(tmp_path, account_requests_per_second=3) as running,
        caplog.at_level("INFO", "penstock.audit"),
    ):
        codes = [ask(running.address, MALLORY, 305).code for _ in range(12)]
        assert codes[0] == 0
        assert 2 in codes
        assert ask(running.address, ALICE, 305).code == 0  # another account's is another rate
    assert "requests in a second of User:mallory" in caplog.text


def test_each_refusal_and_each_administration_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with guarded(tmp_path) as running, caplog.at_level(logging.INFO, "penstock.audit"):
        ask(running.address, MALLORY, 310, send_fields("Theirs"), b"x")
        ask(running.address, ADMIN, 215, {"topic": "No\nSuch"})
        ask(running.address, MALLORY, 310, send_fields("Mine"), b"x")
        strange = {"AccessKey": 'x"\n2026 ERROR faked \x1b[31m' + "y" * 1000}
        ask(running.address, MALLORY, 310, send_fields("Mine"), b"x", fields_after=strange)
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]
    assert len(lines) == 3
    assert all(
        "\n" not in line and line.isascii() and line.isprintable() and len(line) < 1000 for line in lines
    )
    refused, administration, odd = map(json.loads, lines)
    assert refused["peer"].startswith("127.0.0.1:")
    assert {key: refused[key] for key in ("event", "account", "code", "request", "answer")} == {
        "event": "refused",
        "account": "mallory",
        "code": 310,
        "request": "SEND_MESSAGE_V2",
        "answer": 16,
    }
    assert "Topic:Theirs" in refused["why"]
    assert administration["event"] == "administration"
    assert administration["resources"] == ["Topic:No\nSuch"]
    assert odd["account"].startswith('x"\n2026')
    text = "".join(lines)
    assert "secret" not in text
    assert "Signature" not in text


def test_flood_of_refusals_is_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    from penstock.remoting.sparing import SparingLog

    now = [0.0]
    sparing = SparingLog(logger, most=5, seconds=10, now=lambda: now[0])
    with caplog.at_level(logging.INFO, "penstock.audit"):
        for number in range(100):
            sparing.line(logging.WARNING, "line %d", number)
        assert len(caplog.records) == 5
        now[0] = 11.0
        sparing.line(logging.WARNING, "later")
    assert [record.getMessage() for record in caplog.records[-2:]] == [
        "95 more lines of this kind were left out",
        "later",
    ]
    assert Audit()._refusals is not Audit()._administration
