"""Signatures, the file of accounts, limits and the record: what is promised to those who run a broker."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.talking import send_fields
from golden_wire import conversation
from penstock.errors import ConfigError
from penstock.remoting import Command
from penstock.remoting.command import decode
from penstock.remoting.signing import Credentials, is_signed_by, signature, signer
from penstock.security.account import Rights
from penstock.security.accountfile import (
    AccountEntry,
    AccountFile,
    load_accounts,
    read_entries,
    write_entries,
)
from penstock.security.actions import Action, parse_actions
from penstock.security.addresses import AddressPatterns
from penstock.security.audit import Audit, logger
from penstock.security.limits import TokenBucket
from penstock.security.watching import AccountSource
from security.people import ADMIN, ALICE, DEFAULT, MALLORY, ask, entry, guarded, write_accounts

SECRET = b"12345678"
SIGNED_BY_THIS = [
    "auth-super",
    "auth-noperm",
    "auth-push",
    "auth-pushnoperm",
    "auth-go",
    "auth-admin-createUser",
]


# -- signatures --------------------------------------------------------------------------------------------


def test_worked_example_of_the_protocol() -> None:
    fields = {"topic": "T", "AccessKey": "RocketMQ"}
    assert signature(SECRET, fields, b"") == "qij/uwizWhQy5fp70E15Y7+y++Q="


@pytest.mark.parametrize("name", SIGNED_BY_THIS)
def test_recorded_signatures_of_real_clients_are_right(name: str) -> None:
    requests = [decode(line.frame) for line in conversation(name)[1] if line.to != "client"]
    signed = [request for request in requests if "Signature" in request.fields]
    assert signed
    assert all(is_signed_by(SECRET, request) for request in signed)
    assert not any(is_signed_by(b"12345679", request) for request in signed)


def test_recorded_forgeries_are_found() -> None:
    for name in ("auth-badsig", "auth-go-badsig"):
        requests = [decode(line.frame) for line in conversation(name)[1] if line.to == "broker"]
        assert requests
        assert not any(is_signed_by(SECRET, request) for request in requests)


_TEXT = st.text(max_size=20)


@given(fields=st.dictionaries(_TEXT, _TEXT, max_size=8), body=st.binary(max_size=50), token=_TEXT)
def test_what_we_sign_we_believe_and_nothing_else(fields: dict[str, str], body: bytes, token: str) -> None:
    request = Command.request(10, dict(fields), body)
    signer(Credentials("me", "secret-secret", token))(request)
    assert is_signed_by(b"secret-secret", request)
    assert not is_signed_by(b"secret-secre", request)
    signed = request.fields["Signature"]
    request.body = body + b"x"
    assert not is_signed_by(b"secret-secret", request)
    request.body = body
    for wrong in (signed[:-1], signed[:8], "", signed.swapcase(), signed + "=", "ÿ" * 28):
        request.fields["Signature"] = wrong
        assert not is_signed_by(b"secret-secret", request)
    del request.fields["Signature"]
    assert not is_signed_by(b"secret-secret", request)


def test_go_leaves_its_token_out_and_old_clients_the_mark_of_a_query() -> None:
    fields = {"AccessKey": "a", "topic": "T", "SecurityToken": "t"}
    request = Command.request(10, {**fields, "Signature": signature(SECRET, fields, b"", "SecurityToken")})
    assert is_signed_by(SECRET, request)
    fields = {"AccessKey": "a", "topic": "T", "_UNIQUE_KEY_QUERY": "true"}
    old = signature(SECRET, fields, b"", "_UNIQUE_KEY_QUERY")
    request = Command.request(12, {**fields, "Signature": old})
    assert not is_signed_by(SECRET, request)
    request.version = 399
    assert is_signed_by(SECRET, request)


def test_forged_truncated_and_borrowed_signatures_are_refused(tmp_path: Path) -> None:
    with guarded(tmp_path) as running:
        running.create_topic("Mine", 1)
        sent = send_fields("Mine")
        good = Command.request(310, dict(sent), b"x")
        signer(MALLORY)(good)
        right = good.fields["Signature"]
        assert ask(running.address, MALLORY, 310, sent, b"x").code == 0
        for wrong in (right[:-4], right[:-1] + "A", base64.b64encode(bytes(20)).decode(), "", right * 2):
            answer = ask(running.address, MALLORY, 310, sent, b"x", fields_after={"Signature": wrong})
            assert (answer.code, answer.remark) == (16, "check signature failed.")
        # A signature of another body, topic or account does not fit this one.
        for change in (
            {"body_after": b"y"},
            {"fields_after": {"b": "Theirs"}},
            {"fields_after": {"AccessKey": "alice"}},
        ):
            assert ask(running.address, MALLORY, 310, sent, b"x", **change).code == 16
        for name in ("nobody", "", "alice\nfaked line"):
            answer = ask(running.address, MALLORY, 310, sent, b"x", fields_after={"AccessKey": name})
            assert answer.code == 16
        assert running.store.max_offset("Mine", 0) == 1


def test_replayed_request_is_what_the_docs_say_it_is(tmp_path: Path) -> None:
    """The protocol has no nonce: the same bytes work again, and reach nothing that the account may not."""
    with guarded(tmp_path) as running:
        running.create_topic("Mine", 1)
        request = Command.request(310, send_fields("Mine"), b"x")
        signer(MALLORY)(request)
        for _ in range(2):
            assert ask(running.address, None, 310, request.fields, b"x").code == 0
        assert running.store.max_offset("Mine", 0) == 2
        # Nor is the code signed. What the fields name is judged again, so nobody gains a right by that.
        again = ask(running.address, None, 17, request.fields, b"x")
        assert (again.code, again.remark) == (
            16,
            "User:mallory has no permission to access Topic:null from 127.0.0.1, no matched policies.",
        )


# -- rights ------------------------------------------------------------------------------------------------


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


# -- the file ----------------------------------------------------------------------------------------------


def test_changed_file_is_taken_at_once_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "accounts.json"
    source = AccountSource(write_accounts(path))
    assert not source.reload()
    first = source.accounts
    for broken in ("{", '{"accounts": [{"name": "x"}]}', '{"acounts": []}', "\xff", '{"accounts": 5}'):
        path.write_text(broken, "latin-1")
        assert not source.reload()
        assert source.accounts is first
    path.unlink()
    assert not source.reload()
    assert source.accounts is first
    assert caplog.text.count("the accounts in force stay (3)") == 6
    write_accounts(path, [*DEFAULT[:1]])
    assert source.reload()
    assert [each.name for each in source.accounts] == ["root-account"]


def test_removed_account_is_refused_by_a_running_broker(tmp_path: Path) -> None:
    with guarded(tmp_path) as running:
        running.create_topic("Mine", 1)
        assert ask(running.address, MALLORY, 310, send_fields("Mine"), b"x").code == 0
        write_accounts(tmp_path / "accounts.json", DEFAULT[:2])
        guard = running.broker._guard
        assert guard is not None
        assert guard.source is not None
        guard.source.reload()
        answer = ask(running.address, MALLORY, 310, send_fields("Mine"), b"x")
        assert (answer.code, answer.remark) == (16, "User:mallory is not found.")


@pytest.mark.parametrize(
    ("accounts", "why"),
    [
        ([entry(Credentials("a b", "12345678"))], "letters"),
        ([entry(Credentials("a", "1234567"))], "less than 8"),
        ([entry(ALICE), entry(ALICE)], "two accounts"),
        ([entry(ALICE, topics={"T": "WRITE"})], "WRITE"),
        ([entry(ALICE, **{"from": ["300.1.1.1"]})], "300"),
        ([entry(ALICE, group={"T": "PUB"})], "unknown field"),
    ],
)
def test_file_that_is_wrong_is_refused_without_showing_a_secret(
    accounts: list[dict[str, object]], why: str, tmp_path: Path
) -> None:
    path = write_accounts(tmp_path / "a.json", accounts)
    with pytest.raises(ConfigError, match=why) as found:
        load_accounts(path)
    assert path in str(found.value)
    assert not any(str(each["secret"]) in str(found.value) for each in accounts)


def test_written_file_is_its_owners_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "accounts.json"
    made = AccountFile([AccountEntry("a", "secret-of-a", admin=True)])
    write_entries(path, made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in load_accounts(path)] == ["a"]
    assert "secret-of-a" not in repr(made) + repr(list(load_accounts(path)))
    made.accounts.append(AccountEntry("b", "short"))
    with pytest.raises(ConfigError, match="less than 8"):
        write_entries(path, made)
    assert [each.name for each in read_entries(path).accounts] == ["a"]
    assert [each.name for each in path.parent.iterdir()] == ["accounts.json"]


PLAIN_ACL = """
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  - groupA=DENY
- accessKey: rocketmq2
  secretKey: 01234567
  whiteRemoteAddress: 192.168.1.*
  admin: true
"""


def test_plain_acl_of_rocketmq_4_is_read(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN_ACL)
    accounts = load_accounts(path)
    first, second = accounts
    assert (first.name, first.secret, first.admin) == ("RocketMQ", b"12345678", False)
    assert first.topics.of("topicA") == first.topics.of("other") == Action.DENY
    assert first.topics.of("topicB") == Action.PUB | Action.SUB | Action.GET
    assert first.groups.of("groupA") == Action.DENY
    assert first.groups.of("other") == Action.SUB | Action.GET
    assert (second.secret, second.admin) == (b"01234567", True)
    assert second.trusted.match("192.168.1.7")
    assert not second.trusted.match("192.168.2.7")
    assert accounts.trusted.match("10.10.103.9")
    for wrong in (
        "accounts: 5",
        "accounts:\n- accessKey: ab\n  secretKey: 12345678",
        "[",
        "- a",
        "a: &x [*x]",
    ):
        path.write_text(wrong)
        with pytest.raises(ConfigError):
            load_accounts(path)
    path.write_text("accounts:\n")
    assert len(load_accounts(path)) == 0


def test_white_listed_address_needs_no_signature(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    from penstock.testing.broker import RunningBroker

    path = tmp_path / "plain_acl.yml"
    path.write_text("globalWhiteRemoteAddresses: ['127.0.0.*']\naccounts: []\n")
    with RunningBroker(tmp_path / "s", acl_enable=True, accounts_file=str(path)) as running:
        assert ask(running.address, None, 310, send_fields("T"), b"x").code == 0


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*", "1.2.3.4", ""),
        ("1.2.3.4", "1.2.3.4", "1.2.3.5"),
        ("1.2.3.4,1.2.3.5", "1.2.3.5", "1.2.3.6"),
        ("1.2.*.*", "1.2.200.4", "1.3.3.4"),
        ("1.2.3.10-20", "1.2.3.20", "1.2.3.21"),
        ("1.2.3-4.*", "1.2.4.9", "1.2.5.9"),
        ("1.2.3.{4,7}", "1.2.3.7", "1.2.3.5"),
        ("10.0.0.0/8", "10.9.9.9", "11.0.0.1"),
        ("::1", "::1", "::2"),
        ("fe80:0:0:0:0:0:0:*", "fe80::17", "fe81::17"),
        ("fe80:0:0:0:0:0:0:1-f", "fe80::a", "fe80::10"),
        ("1.2.3.4", "::ffff:1.2.3.4", "::ffff:1.2.3.5"),
        ("", "", "1.2.3.4"),
    ],
)
def test_address_patterns_are_rocketmqs(pattern: str, yes: str, no: str) -> None:
    patterns = AddressPatterns([pattern])
    assert not yes or patterns.match(yes)
    assert not no or not patterns.match(no)


# -- limits and the record ---------------------------------------------------------------------------------


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


# -- what is shown -----------------------------------------------------------------------------------------


def test_accounts_are_shown_to_administrators_without_secrets_and_changed_by_nobody(tmp_path: Path) -> None:
    with guarded(tmp_path) as running:
        listed = ask(running.address, ADMIN, 3005)
        assert json.loads(listed.body)[2] == {
            "userStatus": "enable",
            "userType": "Normal",
            "username": "mallory",
        }
        one = ask(running.address, ADMIN, 3009, {"subject": "User:alice"})
        assert json.loads(one.body) == {
            "policies": [
                {
                    "entries": [
                        {"actions": ["Pub", "Sub"], "decision": "Allow", "resource": "Topic:Theirs"},
                        {"actions": ["Sub"], "decision": "Allow", "resource": "Group:theirs"},
                    ],
                    "policyType": "Custom",
                }
            ],
            "subject": "User:alice",
        }
        shown = [listed, one, *(ask(running.address, ADMIN, code) for code in (3004, 3010, 26, 28))]
        assert b"secret-1" not in b"".join(bytes(each.body) for each in shown)
        assert (
            ask(running.address, ADMIN, 3009, {"subject": "User:nobody"}).remark
            == "The subject is not exist."
        )
        before = (tmp_path / "accounts.json").read_bytes()
        for code in (3001, 3002, 3003, 3006, 3007, 3008):
            answer = ask(running.address, ADMIN, code, {"username": "eve", "subject": "User:eve"}, b"{}")
            assert answer.code == 16
            assert answer.remark is not None
            assert "penstock account" in answer.remark
        assert (tmp_path / "accounts.json").read_bytes() == before


def test_broker_that_should_know_its_users_does_not_start_without_them(tmp_path: Path) -> None:
    from penstock.config import BrokerConfig
    from penstock.testing.broker import RunningBroker

    with pytest.raises(ConfigError, match="no file"):
        BrokerConfig(acl_enable=True)
    with pytest.raises(ConfigError, match="can't read"):
        RunningBroker(tmp_path / "s", acl_enable=True, accounts_file=str(tmp_path / "none.json")).start()
    assert not (tmp_path / "s").exists()
    config = BrokerConfig(
        tls_server_key_password="sesame", inner_client_authentication_credentials='{"secretKey":"sesame"}'
    )
    assert "sesame" not in repr(config)


# -- as recorded -------------------------------------------------------------------------------------------

ROCKETMQ2 = Credentials("rocketmq2", "12345678")
RECORDED_ACCOUNTS = [
    entry(ROCKETMQ2, admin=True),
    {
        "name": "alice",
        "secret": "12345678",
        "topics": {"GoSync": "PUB|SUB", "GoAsync": "DENY"},
        "groups": {"acl_g": "SUB"},
    },
]


@pytest.mark.parametrize(
    "name", ["auth-nocred", "auth-badsig", "auth-go-badsig", "auth-noperm", "auth-pushnoperm", "auth-super"]
)
def test_recorded_requests_get_the_answers_rocketmq_gave(name: str, tmp_path: Path) -> None:
    """Sent as they were recorded, signature and all: the same code, and the same remark where it refuses."""
    frames = conversation(name)[1]
    answers = {
        (line.connection, decode(line.frame).opaque): decode(line.frame)
        for line in frames
        if line.to == "client"
    }
    with guarded(tmp_path, RECORDED_ACCOUNTS) as running:
        for topic in ("GoSync", "GoOrder", "GoAsync"):
            running.create_topic(topic)
        compared = 0
        for line in frames:
            request = decode(line.frame)
            expected = answers.get((line.connection, request.opaque))
            if line.to != "broker" or expected is None:
                continue
            given = {"version": request.version, "language": request.language, "opaque": 0}
            answer = ask(running.address, None, request.code, request.fields, bytes(request.body), **given)
            assert answer.code == expected.code, (request, answer.remark)
            if expected.code == 16:
                assert answer.remark == expected.remark
                compared += 1
        assert compared or name == "auth-super"


@pytest.mark.parametrize("name", ["getUser", "getUserNone", "listUser", "getAcl"])
def test_recorded_mqadmin_is_shown_what_rocketmq_shows_but_the_secrets(name: str, tmp_path: Path) -> None:
    asked, expected = (decode(line.frame) for line in conversation(f"auth-admin-{name}")[1])
    alice = {
        "name": "alice",
        "secret": "12345678",
        "topics": {"GoSync": "PUB|SUB"},
        "groups": {"acl_g": "PUB|SUB"},
    }
    with guarded(tmp_path, [alice, entry(ROCKETMQ2, admin=True)]) as running:
        given = {"version": asked.version, "language": asked.language}
        answer = ask(running.address, None, asked.code, asked.fields, bytes(asked.body), **given)
    assert (answer.code, answer.remark) == (expected.code, expected.remark)
    theirs = json.loads(expected.body) if expected.body else None
    for user in theirs if isinstance(theirs, list) else [theirs] if theirs else []:
        user.pop("password", None)
    assert (json.loads(answer.body) if answer.body else None) == theirs


def test_switches_of_rocketmqs_own_files_are_taken(tmp_path: Path) -> None:
    from penstock.config import load_broker_config

    file = tmp_path / "broker.conf"
    file.write_text(
        "aclEnable=true\ntls.server.mode=enforcing\ntls.server.certPath=c.pem\ntls.server.keyPath=k.pem\n"
        "tls.server.need.client.auth=require\ntls.server.trustCertPath=t.pem\ntls.enable=true\n"
        'innerClientAuthenticationCredentials={"accessKey":"broker","secretKey":"hush-hush"}\n'
    )
    config, origins = load_broker_config(file, {"PENSTOCK_ACCOUNTS_FILE": "a.json"})
    assert config.security.accounts_file == "a.json"
    assert config.security.authorize
    assert (config.server_tls.mode, config.server_tls.client_auth) == ("enforcing", "require")
    assert config.client_tls is not None
    assert "hush-hush" not in repr(config) + repr(origins)
    with pytest.raises(ConfigError) as found:
        load_broker_config(file, {}, {"tls_server_key_password": 5, "accounts_file": "a.json"})
    assert "5" not in str(found.value).replace("tls_server_key_password", "")
