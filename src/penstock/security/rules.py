"""What a request needs before it is served: nothing, an account, rights on what it names, an admin's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from penstock.message.topic import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from penstock.remoting import Command
from penstock.security.actions import Action

Kind: TypeAlias = Literal["Topic", "Group"]


class Need(NamedTuple):
    """One of ``actions`` on a topic or group. A name that is None is refused: the request should have one."""

    kind: Kind
    name: str | None
    actions: Action


Needs: TypeAlias = Callable[[Command], Iterable[Need]]


@dataclass(frozen=True, slots=True)
class Rule:
    """``needs`` lists everything a request reaches for; ``admin``: it is administration, and recorded."""

    level: Literal["open", "account", "rights", "super"]
    needs: Needs | None = None
    admin: bool = False


OPEN = Rule("open")
ACCOUNT = Rule("account")
SUPER = Rule("super", admin=True)
SUPER_READ = Rule("super")


def topic_need(name: str | None, actions: Action) -> Need:
    """A topic; those of retries and dead letters belong to their group, and reading them is the group's."""
    if name is not None:
        for prefix in (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX):
            if name.startswith(prefix):
                # The retry topic of a pop consumer also names the topic; a group has no plus sign in it.
                return Need("Group", name[len(prefix) :].partition("+")[0], actions | _sub(actions))
    return Need("Topic", name, actions)


def _sub(actions: Action) -> Action:
    return Action.SUB if actions & (Action.PUB | Action.SUB) else Action.DENY


def group_need(name: str | None, actions: Action) -> Need:
    return Need("Group", name, actions)


def fields(*wanted: tuple[Kind, str, Action], optional: Iterable[tuple[Kind, str, Action]] = ()) -> Needs:
    """Needs of what stands in header fields; an optional one counts when it is there and not empty."""
    more = tuple(optional)

    def needs(request: Command) -> Iterable[Need]:
        given = request.fields
        for kind, key, actions in wanted:
            yield _need(kind, given.get(key), actions)
        for kind, key, actions in more:
            if given.get(key):
                yield _need(kind, given[key], actions)

    return needs


def _need(kind: Kind, name: str | None, actions: Action) -> Need:
    return topic_need(name, actions) if kind == "Topic" else group_need(name, actions)


def rights(needs: Needs, *, admin: bool = False) -> Rule:
    return Rule("rights", needs, admin)
