"""What a consumer group wants of a topic (protocol 5.5, 5.6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock._native.record import string_hash
from penstock.errors import InvalidFilter, RequestRefused
from penstock.filters import SQL92, Filter
from penstock.filters import compile as compile_filter
from penstock.remoting import ResponseCode

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
    _compiled: list[Filter | InvalidFilter] = field(default_factory=list, compare=False, repr=False)

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG

    @property
    def filter(self) -> Filter:
        """What an SQL92 expression means, compiled when it is first asked for.

        InvalidFilter, every time, when it means nothing or the type is another one.
        """
        if not self._compiled:
            try:
                if self.expression_type != SQL92:
                    raise InvalidFilter(f"{self.expression_type[:40]!r} is no type of expression")
                self._compiled.append(compile_filter(self.expression))
            except InvalidFilter as error:
                self._compiled.append(error)
        made = self._compiled[0]
        if isinstance(made, InvalidFilter):
            raise made
        return made

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
    """From the words of a request. A type other than TAG is kept; its text is looked into when it is used.

    The hashes are made here from the tags themselves: Go's client hashes UTF-8 bytes, Java UTF-16 units.
    """
    kind = expression_type or TAG
    if kind != TAG:
        return Subscription(topic, expression or "", kind, version)
    text = expression or "*"
    if text.strip() in ("", "*"):
        return Subscription(topic, "*", kind, version)
    tags = tuple(dict.fromkeys(tag for part in text.split("||") if (tag := part.strip())))
    if not tags:
        return Subscription(topic, text, kind, version)
    return Subscription(
        topic, text, kind, version, tags, frozenset(string_hash(tag.encode()) for tag in tags)
    )


def no_filters(expression_type: str) -> RequestRefused:
    """The answer to a consumer that filters otherwise than by tags, where only tags are taken."""
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
