"""The file of accounts: taken when it changes, refused when it is wrong, its secrets never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.talking import send_fields
from golden_wire import conversation
from penstock.errors import ConfigError
from penstock.remoting.command import decode
from penstock.remoting.signing import Credentials
from penstock.security.accountfile import (
    AccountEntry,
    AccountFile,
    load_accounts,
    read_entries,
    write_entries,
)
from penstock.security.actions import Action
from penstock.security.addresses import AddressPatterns
from penstock.security.watching import AccountSource
from security.people import ADMIN, ALICE, DEFAULT, MALLORY, ask, entry, guarded, write_accounts


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
