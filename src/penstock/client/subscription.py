"""What a group wants of a topic: everything, some tags, or what an SQL expression says (protocol 5.5)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import UsageError
from penstock.format.javahash import java_hash

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


@dataclass(frozen=True)
class Subscription:
    """One topic of a subscription. ``version`` decides which of two brokers keep: the larger."""

    topic: str
    expression: str = ALL
    kind: str = TAG
    version: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    tags: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        if self.kind not in (TAG, SQL92):
            raise UsageError(f"{self.kind!r} is no kind of filter", hint="TAG or SQL92")
        if self.kind == SQL92 and not self.expression.strip():
            raise UsageError("an SQL92 filter needs an expression")
        words = {word.strip() for word in self.expression.split("||")} - {""}
        plain = self.kind == TAG and self.expression.strip() not in ("", ALL)
        object.__setattr__(self, "tags", frozenset(words) if plain else frozenset())
        if self.kind == TAG and self.expression.strip() == "":
            object.__setattr__(self, "expression", ALL)

    def wants(self, tags: str | None) -> bool:
        """Whether a message with these tags is meant. Brokers only compare hashes, so clients look again."""
        return not self.tags or tags in self.tags

    def as_json(self) -> dict[str, Any]:
        """RocketMQ's SubscriptionData."""
        tags = sorted(self.tags)
        return {
            "classFilterMode": False,
            "codeSet": [java_hash(tag) for tag in tags],
            "expressionType": self.kind,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": tags,
            "topic": self.topic,
        }
