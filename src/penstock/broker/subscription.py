"""What a consumer group wants of a topic (protocol 5.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock._native.record import string_hash

TAG = "TAG"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic of a group, or of a single pull. ``codes`` are the hashes of its tags; None takes all."""

    topic: str
    expression: str = "*"
    expression_type: str = TAG
    version: int = 0
    tags: tuple[str, ...] = ()
    codes: frozenset[int] | None = None
    class_filter: bool = False

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG

    def takes(self, tags_code: int) -> bool:
        """Whether a message with this tags code may be wanted; clients look at the tag itself."""
        return self.codes is None or tags_code in self.codes

    def to_json(self) -> dict[str, Any]:
        return {
            "classFilterMode": self.class_filter,
            "codeSet": sorted(self.codes or ()),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


def subscription(
    topic: str, expression: str | None, expression_type: str | None, version: int = 0
) -> Subscription:
    """From the words of a request. A type other than TAG is kept; its text is not looked into.

    The hashes are made here from the tags themselves: Go's client hashes UTF-8 bytes, Java UTF-16 units.
    """
    kind = expression_type or TAG
    text = expression or "*"
    if kind != TAG or text.strip() in ("", "*"):
        return Subscription(topic, text if kind != TAG else "*", kind, version)
    tags = tuple(dict.fromkeys(tag for part in text.split("||") if (tag := part.strip())))
    if not tags:
        return Subscription(topic, text, kind, version)
    return Subscription(
        topic, text, kind, version, tags, frozenset(string_hash(tag.encode()) for tag in tags)
    )
