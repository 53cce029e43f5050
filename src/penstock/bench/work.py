"""What is put and read, the same on every side.

Message ``i`` of a work has a body of ``body`` bytes, tag ``tag{i % 8}``, key ``k{i % distinct}`` and a unique
key, and goes to queue ``i % queues`` of topic ``bench``. The Java side (``PutWork``) makes its messages by
the same rule.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

HITS = 32


@dataclass(frozen=True, slots=True)
class Work:
    """A number of messages to put, and how."""

    n: int
    body: int = 128
    writers: int = 1
    batch: int = 1
    in_flight: int = 1
    queues: int = 4
    first: int = 0
    topic: str = "bench"

    @property
    def distinct(self) -> int:
        """How many keys there are, such that each has 32 messages."""
        return max(1, self.n // HITS)

    def body_bytes(self) -> bytes:
        """The body that all messages share."""
        return bytes(index * 31 % 256 for index in range(self.body))

    def tags(self, index: int) -> str:
        """Tag of message ``index``."""
        return f"tag{index % 8}"

    def keys(self, index: int) -> str:
        """Key of message ``index``."""
        return f"k{index % self.distinct}"

    def command(self) -> dict[str, Any]:
        """As arguments of the Java side's ``put``."""
        fields = asdict(self)
        del fields["topic"]
        return {**fields, "distinct": self.distinct}


def unique_keys() -> Callable[[], str]:
    """A maker of unique keys for who has nothing better: process prefix and counter, 32 hex digits."""
    prefix = os.urandom(12).hex().upper()
    counter = itertools.count()
    return lambda: f"{prefix}{next(counter) & 0xFFFFFFFF:08X}"
