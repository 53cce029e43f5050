"""Who asks, and may they: every request passes here before its handler when accounts or limits are on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.remoting import Command, Connection, Handler, ResponseCode
from penstock.remoting.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, is_signed_by
from penstock.security.account import Account, Accounts
from penstock.security.actions import Action
from penstock.security.audit import Audit
from penstock.security.limits import AccountLimits, TokenBucket
from penstock.security.rules import Need, Rule

_BUCKET, _TRUSTED = "security.bucket", "security.trusted"


class Refused(NamedTuple):
    """The answer to a request that is not served."""

    code: int
    remark: str


class Gate:
    """Stands before the handlers of one server.

    ``accounts`` gives the accounts in force now, or is None: nobody is asked who they are. ``authorize``:
    rights count too, not only the signature. A code without a rule is refused.
    """

    def __init__(
        self,
        rules: Mapping[int, Rule],
        *,
        accounts: Callable[[], Accounts] | None,
        authorize: bool = True,
        cluster: str = "DefaultCluster",
        connection_rate: int = 0,
        account_rate: int = 0,
        now: Callable[[], float],
    ) -> None:
        self._rules = rules
        self._accounts = accounts
        self._authorize = authorize
        self._cluster = cluster
        self._connection_rate = connection_rate
        self._account_limits = AccountLimits(account_rate, now) if account_rate else None
        self._account_rate = account_rate
        self._now = now
        self.audit = Audit()

    def before(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same table with this gate before each handler."""
        return {code: self._guarded(self._rules.get(code), handler) for code, handler in handlers.items()}

    def _guarded(self, rule: Rule | None, handler: Handler) -> Handler:
        def guarded(connection: Connection, request: Command) -> object:
            refused = self.refusal(connection, request, rule)
            if refused is not None:
                self.audit.refused(connection, request, *refused)
                return request.answer(refused.code, remark=refused.remark)
            # Some requests are passed on to clients, who could use the signature again.
            for name in (SIGNATURE, SECURITY_TOKEN):
                request.fields.pop(name, None)
            return handler(connection, request)

        return guarded  # type: ignore[return-value]

    def refusal(self, connection: Connection, request: Command, rule: Rule | None) -> Refused | None:
        """Why a request is not served; None when it is."""
        if self._connection_rate and not self._bucket(connection).take(self._now()):
            return _busy(f"more than {self._connection_rate} requests in a second on this connection")
        if self._accounts is None:
            return None
        if rule is None:
            return _no(f"request {request.code} is open to nobody")
        if rule.level == "open" or self._is_trusted(connection):
            return self._allowed(connection, request, rule, None)
        account = self._who(connection, request)
        if isinstance(account, Refused):
            return account
        if self._account_limits is not None and not self._account_limits.take(account.name):
            return _busy(f"more than {self._account_rate} requests in a second of User:{account.name}")
        return self._allowed(connection, request, rule, account)

    # -- who ----------------------------------------------------------------------------------------------

    def _who(self, connection: Connection, request: Command) -> Account | Refused:
        assert self._accounts is not None
        name = request.fields.get(ACCESS_KEY)
        if not name:
            return _no("username cannot be null.")
        account = self._accounts().find(name)
        if account is None:
            return _no(f"User:{name} is not found.")
        if not account.enabled:
            return _no(f"User:{name} is disabled.")
        host = connection.peer[0]
        if not account.trusted.match(host) and not is_signed_by(account.secret, request):
            return _no("check signature failed.")
        if account.sources and not account.sources.match(host):
            return _no(f"User:{name} may not come from {host}.")
        return account

    def _is_trusted(self, connection: Connection) -> bool:
        assert self._accounts is not None
        accounts = self._accounts()
        if not accounts.trusted:
            return False
        known = connection.context.get(_TRUSTED)
        if known is None or known[0] is not accounts:
            known = connection.context[_TRUSTED] = (accounts, accounts.trusted.match(connection.peer[0]))
        return bool(known[1])

    # -- may they -----------------------------------------------------------------------------------------

    def _allowed(
        self, connection: Connection, request: Command, rule: Rule, account: Account | None
    ) -> Refused | None:
        """``account`` None: somebody who need not say who they are."""
        free = account is None or account.admin or account.trusted.match(connection.peer[0])
        names: list[str] = []
        if rule.needs is not None and (rule.admin or not free):
            try:
                needs = list(rule.needs(request))
            except (PenstockError, ValueError) as error:
                # What can't be read can't be judged. Administrators get the handler's own answer.
                if not free and self._authorize:
                    return _no(f"what the request names can't be read: {error}")
                needs = []
            names = [f"{need.kind}:{need.name}" for need in needs]
            if not free and self._authorize:
                assert account is not None
                for need in needs:
                    if (refused := _judge(account, need, connection.peer[0])) is not None:
                        return refused
        if rule.level == "super" and not free and self._authorize:
            assert account is not None
            return _no_permission(account, f"Cluster:{self._cluster}", connection.peer[0], None)
        if rule.admin:
            self.audit.administration(connection, request, names)
        return None

    def _bucket(self, connection: Connection) -> TokenBucket:
        bucket = connection.context.get(_BUCKET)
        if bucket is None:
            bucket = connection.context[_BUCKET] = TokenBucket(self._connection_rate, self._now())
        found: TokenBucket = bucket
        return found


def _judge(account: Account, need: Need, host: str) -> Refused | None:
    rights = account.topics if need.kind == "Topic" else account.groups
    held = rights.of(need.name) if need.name is not None else None
    if held is not None and held & need.actions:
        return None
    return _no_permission(account, f"{need.kind}:{need.name or 'null'}", host, held)


def _no_permission(account: Account, resource: str, host: str, held: Action | None) -> Refused:
    why = "the decision is deny." if held is Action.DENY else "no matched policies."
    return _no(f"User:{account.name} has no permission to access {resource} from {host}, {why}")


def _no(remark: str) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, remark)


def _busy(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]{remark}, try again later")
