"""Who may do what: the closest rule decides, and nothing is allowed by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.talking import send_fields
from penstock.security.account import Rights
from penstock.security.actions import Action, parse_actions
from security.people import ADMIN, ALICE, MALLORY, ask, entry, guarded, write_accounts


def test_the_closest_pattern_decides_and_nothing_is_allowed_by_itself() -> None:
    rights = Rights({"orders": Action.DENY, "orders-*": Action.SUB, "ord*": Action.PUB})
    assert rights.of("orders") == Action.DENY
    assert rights.of("orders-eu") == Action.SUB
    assert rights.of("ordinary") == Action.PUB
    assert rights.of("other") is None
    assert Rights({}).of("anything") is None
    with pytest.raises(ValueError, match="star"):
        Rights({"a*b": Action.PUB})


def test_actions_are_read_in_rocketmqs_words() -> None:
    assert parse_actions("PUB|SUB") == parse_actions("sub, pub") == Action.PUB | Action.SUB | Action.GET
    assert parse_actions("DENY") == Action.DENY
    assert parse_actions("All") == Action.ALL
    with pytest.raises(ValueError, match="PUBLISH"):
        parse_actions("PUBLISH")


def test_explicit_denial_is_told_from_no_rule(tmp_path: Path) -> None:
    with guarded(tmp_path) as running:
        denied = ask(running.address, MALLORY, 310, send_fields("Denied"), b"x")
        assert denied.remark == (
            "User:mallory has no permission to access Topic:Denied from 127.0.0.1, the decision is deny."
        )
        unknown = ask(running.address, MALLORY, 310, send_fields("NewTopic"), b"x")
        assert unknown.remark == (
            "User:mallory has no permission to access Topic:NewTopic from 127.0.0.1, no matched policies."
        )
        assert running.broker.topics.find("NewTopic") is None
        # Retries and dead letters are their group's.
        assert ask(running.address, MALLORY, 310, send_fields("%RETRY%mine"), b"x").code == 0
        for topic in ("%RETRY%theirs", "%DLQ%theirs"):
            assert ask(running.address, MALLORY, 310, send_fields(topic), b"x").code == 16


def test_authentication_alone_asks_who_and_not_what(tmp_path: Path) -> None:
    file = write_accounts(tmp_path / "a.json")
    from penstock.testing.broker import RunningBroker

    with RunningBroker(tmp_path / "s", authentication_enabled=True, accounts_file=file) as running:
        assert ask(running.address, MALLORY, 310, send_fields("Theirs"), b"x").code == 0
        assert ask(running.address, None, 310, send_fields("Theirs"), b"x").code == 16


def test_light_queues_in_properties_need_rights_too(tmp_path: Path) -> None:
    with guarded(tmp_path) as running:
        running.create_topic("Mine", 1)
        properties = "INNER_MULTI_DISPATCH\x01%LMQ%theirs\x02"
        assert ask(running.address, MALLORY, 310, send_fields("Mine", properties=properties), b"x").code == 16
        doubled = "INNER_MULTI_DISPATCH\x01Mine\x02" + properties
        assert ask(running.address, MALLORY, 310, send_fields("Mine", properties=doubled), b"x").code == 16


def test_names_that_can_not_be_read_are_refused(tmp_path: Path) -> None:
    with guarded(tmp_path) as running:
        for code, body in (
            (34, b"{"),
            (34, b"[]"),
            (41, b"null"),
            (200151, b"{}"),
            (18, b'{"topicConfigList":5}'),
        ):
            assert ask(running.address, MALLORY, code, {}, body).code == 16, code


def test_disabled_account_and_wrong_place_are_refused(tmp_path: Path) -> None:
    accounts = [
        entry(ALICE, admin=True, enabled=False),
        entry(MALLORY, admin=True, **{"from": ["10.0.0.0/8"]}),
        entry(ADMIN, admin=True, **{"from": ["127.0.0.1"]}),
    ]
    with guarded(tmp_path, accounts) as running:
        assert ask(running.address, ALICE, 28).remark == "User:alice is disabled."
        assert ask(running.address, MALLORY, 28).remark == "User:mallory may not come from 127.0.0.1."
        assert ask(running.address, ADMIN, 28).code == 0
