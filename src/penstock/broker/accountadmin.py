"""RocketMQ 5's requests for users and rights (3001 to 3010): shown to administrators, changed by nobody.

Accounts are changed in their file, by who may write there. A remote request that could write it would make
the secret of one administrator, or one replayed request, a lasting way in. Secrets are not shown either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.bodies import json_answer
from penstock.errors import RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.security.account import Account, Accounts, Rights
from penstock.security.actions import Action, action_names

_WRITES = (
    *(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER),
    *(RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL, RequestCode.AUTH_DELETE_ACL),
)
_NOT_SET = "not set any response code"
"""What RocketMQ says beside its success."""
_SUBJECT = "User:"


class AccountAdmin:
    """``accounts`` gives the accounts in force now."""

    def __init__(self, accounts: Callable[[], Accounts]) -> None:
        self._accounts = accounts

    def handlers(self) -> dict[int, Handler]:
        return {
            **dict.fromkeys(_WRITES, self.refuse),
            RequestCode.AUTH_GET_USER: self.user,
            RequestCode.AUTH_LIST_USER: self.users,
            RequestCode.AUTH_GET_ACL: self.acl,
            RequestCode.AUTH_LIST_ACL: self.acls,
        }

    def refuse(self, connection: Connection, request: Command) -> Command:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            "accounts are changed in the broker's file of accounts (penstock account), not by requests",
        )

    def user(self, connection: Connection, request: Command) -> Command:
        found = self._accounts().find(request.fields.get("username", ""))
        if found is None:
            return request.answer(0, remark=_NOT_SET)
        return _shown(request, _user(found))

    def users(self, connection: Connection, request: Command) -> Command:
        part = request.fields.get("filter", "")
        return _shown(request, [_user(each) for each in self._accounts() if part in each.name])

    def acl(self, connection: Connection, request: Command) -> Command:
        subject = request.fields.get("subject", "")
        found = self._accounts().find(subject.removeprefix(_SUBJECT))
        if found is None or not subject.startswith(_SUBJECT):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        return _shown(request, _acl(found))

    def acls(self, connection: Connection, request: Command) -> Command:
        subject, resource = request.fields.get("subjectFilter", ""), request.fields.get("resourceFilter", "")
        listed = [_acl(each, resource) for each in self._accounts() if subject in _SUBJECT + each.name]
        return _shown(request, [each for each in listed if each["policies"]])


def _shown(request: Command, value: Any) -> Command:
    answer = json_answer(request, value)
    answer.remark = _NOT_SET
    return answer


def _user(account: Account) -> dict[str, Any]:
    return {
        "userStatus": "enable" if account.enabled else "disable",
        "userType": "Super" if account.admin else "Normal",
        "username": account.name,
    }


def _acl(account: Account, part: str = "") -> dict[str, Any]:
    entries = [
        entry
        for kind, rights in (("Topic", account.topics), ("Group", account.groups))
        for entry in _entries(kind, rights, account.sources.texts)
        if part in entry["resource"]
    ]
    policies = [{"entries": entries, "policyType": "Custom"}] if entries else []
    return {"policies": policies, "subject": _SUBJECT + account.name}


def _entries(kind: str, rights: Rights, sources: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "actions": action_names(actions if actions else Action.ALL),
            "decision": "Allow" if actions else "Deny",
            "resource": f"{kind}:{pattern}",
            **({"sourceIps": sources} if sources else {}),
        }
        for pattern, actions in rights.given.items()
    ]
