"""The error tree: what happened, where it happened, what to do next.

Everything this package raises on purpose is a :class:`PenstockError`. ``str()`` of an error is a whole
sentence for people; ``file``, ``offset`` and ``hint`` are there for programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any


def _rebuild(cls: type[PenstockError], message: str, state: dict[str, Any]) -> PenstockError:
    """Unpickle without the constructor, whose arguments differ between the classes."""
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class PenstockError(Exception):
    """Root of the tree.

    ``message`` is what happened, ``file`` and ``offset`` where (None when unknown), ``hint`` the next step.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | PathLike[str] | None = None,
        offset: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = None if file is None else fspath(file)
        self.offset = offset
        self.hint = hint

    def __str__(self) -> str:
        where = ""
        if self.file is not None:
            where = self.file if self.offset is None else f"{self.file} at offset {self.offset}"
        elif self.offset is not None:
            where = f"offset {self.offset}"
        text = f"{where}: {self.message}" if where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def __reduce__(self) -> tuple[Callable[..., PenstockError], tuple[Any, ...]]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


class StoreError(PenstockError):
    """Anything about a store directory or an open store."""


class CorruptRecord(StoreError):
    """A record that can't be what the writer meant. ``found`` says what was there instead."""

    def __init__(self, file: str | PathLike[str], offset: int, *, found: str, hint: str = "") -> None:
        super().__init__(f"corrupt record: {found}", file=file, offset=offset, hint=hint)
        self.found = found


class CorruptFile(StoreError):
    """A file that can't be what the writer meant: wrong size, torn, foreign. ``found`` tells more."""

    def __init__(
        self, file: str | PathLike[str], *, found: str, hint: str = "", offset: int | None = None
    ) -> None:
        super().__init__(f"corrupt file: {found}", file=file, offset=offset, hint=hint)
        self.found = found


class StoreLocked(StoreError):
    """Somebody else owns the directory: another process, or another open store of this one."""


class StoreClosed(StoreError):
    """The store was closed before or during the call."""


class StoreReadOnly(StoreError):
    """Writing is refused: opened read-only, or a sync failed earlier. ``cause`` is that failure, or None."""

    def __init__(
        self,
        message: str,
        *,
        cause: BaseException | None = None,
        file: str | PathLike[str] | None = None,
        offset: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, file=file, offset=offset, hint=hint)
        self.cause = cause


class FlushFailed(StoreError):
    """The disk refused a sync. Terminal: nothing written since the last good sync is acknowledged, ever."""


class FlushTimeout(StoreError):
    """The flush did not finish in time. The message may or may not be on disk."""


class DiskFull(StoreError):
    """No space left. Nothing was written; the same call may succeed when space returns."""


class ForkedProcess(StoreError):
    """An open store was used in a forked child, where a write would go into the parent's log."""


class NotAStore(StoreError):
    """The path is not a store directory."""


class StoreVersion(StoreError):
    """The directory was written in a layout this version does not know."""


class DataLost(StoreError):
    """Messages that were asked for are gone. ``ranges``: topic, queue, first offset, end (exclusive)."""

    def __init__(
        self,
        message: str,
        ranges: Sequence[tuple[str, int, int, int]],
        *,
        file: str | PathLike[str] | None = None,
        hint: str = "",
    ) -> None:
        names = ", ".join(f"{topic}/{queue} [{start}, {end})" for topic, queue, start, end in ranges)
        super().__init__(f"{message}: {names}" if names else message, file=file, hint=hint)
        self.ranges = tuple((topic, queue, start, end) for topic, queue, start, end in ranges)


class MessageRejected(PenstockError):
    """A message that no store takes. ``status`` is RocketMQ's name for the refusal."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


class ConfigError(PenstockError):
    """A setting that is unknown, of the wrong type or out of range. ``key`` and ``source`` say which."""

    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        source: str | None = None,
        file: str | PathLike[str] | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, file=file, hint=hint)
        self.key = key
        self.source = source


class UsageError(PenstockError):
    """A call or a command that makes no sense as given."""


class SparkUnavailable(PenstockError):
    """Spark can't be used here: no Java, one that is too old, or a package is missing."""


class InvalidFilter(PenstockError):
    """An SQL92 expression that is none, or one beyond the limits. ``position`` is the character, if known."""

    def __init__(self, message: str, position: int | None = None, *, hint: str = "") -> None:
        super().__init__(
            f"no filter: {message}" + ("" if position is None else f" at character {position + 1}"), hint=hint
        )
        self.position = position


class RemotingError(PenstockError):
    """Anything about talking to a broker, a name server or a client over the network."""


class BadFrame(RemotingError):
    """Bytes that are no frame of the protocol, or one beyond the limits. The connection can't go on."""


class RemotingTimeout(RemotingError):
    """No answer in time. Whether the request was carried out is unknown."""


class ConnectionLost(RemotingError):
    """The connection can't be made, or broke before the answer: a request under way may be carried out."""


class ListenFailed(RemotingError):
    """A port can't be listened on: somebody else has it, or the address is not this machine's."""


class RequestRefused(RemotingError):
    """A request answered with something else than success.

    Raised by a handler it becomes that answer: ``code`` and ``remark`` as RocketMQ's clients know them,
    ``fields`` the answer's header. A client raises it when it gets such an answer.
    """

    def __init__(self, code: int, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(f"refused with code {code}: {remark}")
        self.code = int(code)
        self.remark = remark
        self.fields = dict(fields or {})
