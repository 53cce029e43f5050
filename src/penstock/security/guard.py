"""The security of one server put together: TLS, accounts, the gate before its handlers, their files."""

from __future__ import annotations

import time
from collections.abc import Mapping

from penstock.config.security import SecuritySettings
from penstock.remoting import Handler
from penstock.remoting.tlscontext import ServerTls
from penstock.security.account import Accounts
from penstock.security.gate import Gate
from penstock.security.rules import Rule
from penstock.security.watching import AccountSource, Watching


class Guard:
    """Made before the server listens: raises ConfigError for files that are missing or wrong."""

    def __init__(self, settings: SecuritySettings, rules: Mapping[int, Rule]) -> None:
        self.tls = ServerTls(settings.tls)
        self.source = AccountSource(settings.accounts_file) if settings.accounts_file else None
        self.gate: Gate | None = None
        if self.source is not None or settings.connection_requests_per_second:
            self.gate = Gate(
                rules,
                accounts=None if self.source is None else self.accounts,
                authorize=settings.authorize,
                cluster=settings.cluster,
                connection_rate=settings.connection_requests_per_second,
                account_rate=settings.account_requests_per_second,
                now=time.monotonic,
            )
        watched = [self.tls.reload] if self.tls.context is not None else []
        self._watching = Watching(watched if self.source is None else [*watched, self.source.reload])

    def accounts(self) -> Accounts:
        """Those in force now."""
        assert self.source is not None
        return self.source.accounts

    def before(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers as they are served: themselves when nothing is asked of anybody."""
        return handlers if self.gate is None else self.gate.before(handlers)

    def start(self) -> None:
        """Watch the files. On the server's loop."""
        self._watching.start()

    async def stop(self) -> None:
        await self._watching.stop()
