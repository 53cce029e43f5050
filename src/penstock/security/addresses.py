"""Patterns of addresses, in the forms that RocketMQ's white lists have, and as networks (10.0.0.0/8)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable

_MAX_PATTERNS = 1000
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressPatterns:
    """A list of patterns. Empty: nothing matches."""

    __slots__ = ("_tests", "texts")

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raises ValueError for a pattern that is none."""
        self.texts = [text for pattern in patterns for text in _split(pattern)]
        if len(self.texts) > _MAX_PATTERNS:
            raise ValueError(f"more than {_MAX_PATTERNS} addresses")
        self._tests = [_test(text) for text in self.texts]

    def __bool__(self) -> bool:
        return bool(self._tests)

    def match(self, host: str) -> bool:
        """Whether one of them takes this address; an IPv4 address that came as IPv6 is the IPv4 one."""
        if not self._tests:
            return False
        try:
            address: _Address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(test(address) for test in self._tests)


def _split(pattern: str) -> list[str]:
    """A list with commas between; those inside of braces belong to the group."""
    parts = re.split(r",(?![^{]*\})", pattern)
    return [part.strip() for part in parts if part.strip()]


def _test(text: str) -> Callable[[_Address], bool]:
    if text in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
        return lambda address: True
    if "/" in text:
        network = ipaddress.ip_network(text, strict=False)
        return lambda address: address.version == network.version and address in network
    if not any(mark in text for mark in "*-{"):
        exact = ipaddress.ip_address(text)
        return lambda address: address == exact
    return _parts_test(text)


def _parts_test(text: str) -> Callable[[_Address], bool]:
    version, separator, base, count = (6, ":", 16, 8) if ":" in text else (4, ".", 10, 4)
    parts = [_part(part, base) for part in text.split(separator)]
    if len(parts) != count:
        raise ValueError(f"{text!r} is no pattern of an address")

    def test(address: _Address) -> bool:
        if address.version != version:
            return False
        numbers = (int(number, base) for number in address.exploded.split(separator))
        return all(
            any(low <= number <= high for low, high in ranges)
            for number, ranges in zip(numbers, parts, strict=True)
        )

    return test


def _part(text: str, base: int) -> list[tuple[int, int]]:
    most = 0xFFFF if base == 16 else 255
    if text == "*":
        return [(0, most)]
    choices = text[1:-1].split(",") if text.startswith("{") and text.endswith("}") else [text]
    found = []
    for choice in choices:
        low, dash, high = choice.strip().partition("-")
        first = int(low, base)
        last = int(high, base) if dash else first
        if not 0 <= first <= last <= most:
            raise ValueError(f"{choice!r} is no part of an address")
        found.append((first, last))
    return found
