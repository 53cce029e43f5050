"""An account: a name, a secret, and rights on topics and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.security.actions import Action
from penstock.security.addresses import AddressPatterns

_NOBODY = AddressPatterns(())


class Rights:
    """By name: exactly, by the longest beginning (``orders-*``), or for all (``*``). Else nothing."""

    __slots__ = ("_exact", "_prefixes", "given")

    def __init__(self, given: Mapping[str, Action]) -> None:
        """ValueError for a pattern with a star anywhere but at its end."""
        self.given = dict(given)
        self._exact: dict[str, Action] = {}
        prefixes: dict[str, Action] = {}
        for pattern, actions in given.items():
            if "*" in pattern[:-1] or not pattern:
                raise ValueError(f"{pattern!r}: a star stands at the end")
            if pattern.endswith("*"):
                prefixes[pattern[:-1]] = actions
            else:
                self._exact[pattern] = actions
        self._prefixes = sorted(prefixes.items(), key=lambda item: -len(item[0]))

    def of(self, name: str) -> Action | None:
        """What may be done to it; None when no pattern speaks of it."""
        found = self._exact.get(name)
        if found is None:
            for prefix, actions in self._prefixes:
                if name.startswith(prefix):
                    return actions
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """``secret`` is never shown, compared in constant time only, and leaves this process in no form."""

    name: str
    secret: bytes = field(repr=False)
    admin: bool = False
    enabled: bool = True
    topics: Rights = field(default_factory=lambda: Rights({}))
    groups: Rights = field(default_factory=lambda: Rights({}))
    # Where it may be used from; nothing given = from everywhere.
    sources: AddressPatterns = _NOBODY
    # Where it is believed without a signature and may do everything: plain_acl.yml's whiteRemoteAddress.
    trusted: AddressPatterns = _NOBODY


class Accounts:
    """All of them, as one file had them: never changed, only exchanged for others."""

    __slots__ = ("_by_name", "trusted")

    def __init__(self, accounts: Iterable[Account] = (), trusted: AddressPatterns = _NOBODY) -> None:
        """ValueError for two of one name."""
        self._by_name: dict[str, Account] = {}
        self.trusted = trusted
        for account in accounts:
            if account.name in self._by_name:
                raise ValueError(f"two accounts are called {account.name!r}")
            self._by_name[account.name] = account

    def find(self, name: str) -> Account | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)
