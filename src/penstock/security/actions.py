"""What can be done to a topic or a group. RocketMQ 5's words; those of 4.x are the first two."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag


class Action(IntFlag):
    """A set of actions: a right holds some, a request needs one of some."""

    DENY = 0
    PUB = 1
    SUB = 2
    CREATE = 4
    UPDATE = 8
    DELETE = 16
    GET = 32
    LIST = 64
    ALL = 127


_WORDS = {
    "DENY": Action.DENY,
    # Who may write or read a topic may also be told about it.
    "PUB": Action.PUB | Action.GET,
    "SUB": Action.SUB | Action.GET,
    "CREATE": Action.CREATE,
    "UPDATE": Action.UPDATE,
    "DELETE": Action.DELETE,
    "GET": Action.GET,
    "LIST": Action.LIST,
    "ALL": Action.ALL,
    "ANY": Action.PUB | Action.SUB | Action.GET,
}


def parse_actions(text: str) -> Action:
    """``PUB|SUB``, ``DENY``, ``ALL``…, in any case; ValueError for a word that is none of them."""
    found = Action.DENY
    for part in text.replace(",", "|").split("|"):
        word = part.strip().upper()
        if word not in _WORDS:
            raise ValueError(f"{part.strip()!r} is no action; there are {', '.join(_WORDS)}")
        found |= _WORDS[word]
    return found


def action_names(actions: Action) -> list[str]:
    """The words, as RocketMQ's tools print them. What comes with another is not said."""
    if actions == Action.ALL:
        return ["All"]
    if actions & (Action.PUB | Action.SUB):
        actions &= ~Action.GET
    return [(each.name or "").capitalize() for each in _each(actions)]


def _each(actions: Action) -> Iterable[Action]:
    return (each for each in Action if each in actions and each not in (Action.DENY, Action.ALL))
