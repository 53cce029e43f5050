"""Signatures: right ones are believed, every other one is refused."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.talking import send_fields
from golden_wire import conversation
from penstock.remoting import Command
from penstock.remoting.command import decode
from penstock.remoting.signing import Credentials, is_signed_by, signature, signer
from security.people import MALLORY, ask, guarded

SECRET = b"12345678"
SIGNED_BY_THIS = [
    "auth-super",
    "auth-noperm",
    "auth-push",
    "auth-pushnoperm",
    "auth-go",
    "auth-admin-createUser",
]


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
