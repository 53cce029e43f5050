"""Every request code that is served: who may not, is refused with 16, and nothing comes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.talking import send_fields
from penstock.broker.permissions import permissions
from penstock.message.ids import decode_message_id
from penstock.namesrv.permissions import permissions as name_server_permissions
from penstock.remoting.signing import Credentials
from penstock.security.rules import Rule
from penstock.testing.broker import RunningBroker
from security.people import ADMIN, ALICE, MALLORY, ask, guarded
from security.reaching import OF_ADMINISTRATORS, OF_EVERY_ACCOUNT, REACHING, Reach

NO_PERMISSION = 16
CODES = sorted({*REACHING, *OF_ADMINISTRATORS, *OF_EVERY_ACCOUNT})


class Place:
    """A broker with a message of Alice's in it."""

    def __init__(self, running: RunningBroker) -> None:
        self.running = running
        self.address = running.address
        for name in ("Theirs", "Mine"):
            running.create_topic(name)
        sent = ask(self.address, ALICE, 310, send_fields("Theirs"), b"hers")
        assert sent.code == 0
        self.message_id = sent.fields["msgId"]
        place = decode_message_id(self.message_id)[1]
        self.theirs = Reach("Theirs", "theirs", place, self.message_id)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with guarded(tmp_path_factory.mktemp("codes")) as running:
        yield Place(running)


def test_every_served_code_has_a_rule_and_a_case_here(place: Place) -> None:
    served = set(place.running.broker.handlers)
    ruled = set(permissions(place.running.broker)) | set(name_server_permissions())
    assert served - ruled == set(), "add a rule in broker/permissions.py"
    assert served - set(CODES) == set(), "add a case in tests/security/reaching.py"


@pytest.mark.parametrize("code", CODES)
def test_stranger_is_refused(code: int, place: Place) -> None:
    if code not in place.running.broker.handlers:
        pytest.skip("not served")
    fields, body = REACHING[code](place.theirs) if code in REACHING else ({}, b"")
    answer = ask(place.address, None, code, fields, body)
    assert (answer.code, answer.remark) == (NO_PERMISSION, "username cannot be null.")
    wrong = Credentials("alice", "alice-secret-2")
    answer = ask(place.address, wrong, code, fields, body)
    assert (answer.code, answer.remark) == (NO_PERMISSION, "check signature failed.")


@pytest.mark.parametrize("code", sorted({*REACHING, *OF_ADMINISTRATORS}))
def test_user_who_reaches_for_anothers_is_refused(code: int, place: Place) -> None:
    if code not in place.running.broker.handlers:
        pytest.skip("not served")
    fields, body = REACHING[code](place.theirs) if code in REACHING else ({}, b"")
    before = place.running.store.max_offset("Theirs", 0)
    answer = ask(place.address, MALLORY, code, fields, body)
    assert answer.code == NO_PERMISSION
    assert answer.remark is not None
    assert answer.remark.startswith("User:mallory has no permission to access ")
    assert not answer.body
    assert place.running.store.max_offset("Theirs", 0) == before


@pytest.mark.parametrize("code", sorted(OF_EVERY_ACCOUNT))
def test_every_account_may_ask_what_tells_of_nobody(code: int, place: Place) -> None:
    fields = {"namespace": "n", "key": "k", "clusterName": "c", "brokerName": "b"}
    assert ask(place.address, MALLORY, code, fields).code != NO_PERMISSION


OF_USERS = [
    *(10, 310, 320, 11, 361, 14, 15, 34, 35, 38, 46, 41, 42, 29, 30, 31, 32, 12, 321, 202, 351, 300),
    *(352, 343, 345, 203, 208, 303, 223, 105, 400, 200050, 200052, 200054, 200055),
]


@pytest.mark.parametrize("code", OF_USERS)
def test_user_reaches_their_own(code: int, place: Place) -> None:
    """The same requests, with the names that the account has rights on."""
    mine = Reach("Mine", "mine", place.theirs.place, place.message_id)
    fields, body = REACHING[code](mine)
    answer = ask(place.address, MALLORY, code, fields, body)
    assert answer.code != NO_PERMISSION, answer.remark


@pytest.mark.parametrize("code", [10, 310, 320, 11, 33, 36, 12, 30, 202, 17, 18, 200, 225, 25, 26, 28, 208])
def test_administrator_may(code: int, place: Place) -> None:
    own = Reach("Kept", "kept", place.theirs.place, place.message_id)
    fields, body = REACHING[code](own) if code in REACHING else ({}, b"")
    answer = ask(place.address, ADMIN, code, fields, body)
    assert answer.code != NO_PERMISSION, answer.remark


def test_owner_reads_by_place_what_others_may_not(place: Place) -> None:
    fields = {"offset": str(place.theirs.place)}
    assert b"hers" in bytes(ask(place.address, ALICE, 33, fields).body)
    refused = ask(place.address, MALLORY, 33, fields)
    assert refused.code == NO_PERMISSION
    assert refused.remark is not None
    assert "Topic:Theirs" in refused.remark


def test_handler_without_a_rule_is_refused_to_everybody(place: Place) -> None:
    """A request that somebody adds and forgets here is open to nobody, not to all."""
    guard = place.running.broker._guard
    assert guard is not None
    assert guard.gate is not None
    rules: dict[int, Rule] = {}
    guard.gate._rules, kept = rules, guard.gate._rules
    try:
        table = guard.gate.before({10: lambda connection, request: request.answer(0)})
    finally:
        guard.gate._rules = kept
    server = place.running.broker._server
    assert server is not None
    before, server.handlers = server.handlers, table
    try:
        answer = ask(place.address, ADMIN, 10)
    finally:
        server.handlers = before
    assert (answer.code, answer.remark) == (NO_PERMISSION, "request 10 is open to nobody")
