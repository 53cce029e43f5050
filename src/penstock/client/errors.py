"""What can go wrong between a client and its brokers, beside :mod:`penstock.errors`' own.

``RemotingTimeout`` and ``ConnectionLost`` come from below. An answer that is no success is raised as the
class of its code where a program would want to tell it apart, else as ``RequestRefused`` itself; ``code``,
``remark`` and ``address`` are there in any case.
"""

from __future__ import annotations

from penstock.errors import ConnectionLost, RemotingError, RemotingTimeout, RequestRefused
from penstock.remoting import Command, ResponseCode

__all__ = [
    "BrokerError",
    "BrokerFailed",
    "BrokerNotFound",
    "BrokerUnavailable",
    "ClientClosed",
    "ConnectionLost",
    "ConsumerNotOnline",
    "DataNotFound",
    "GroupNotExist",
    "InvalidRequest",
    "MessageIllegal",
    "NoPermission",
    "RemotingTimeout",
    "RequestRefused",
    "RouteNotFound",
    "SystemBusy",
    "TopicNotExist",
    "refusal",
]


class ClientClosed(RemotingError):
    """The producer or consumer is closed, or was closed during the call, or was never started."""


class RouteNotFound(RemotingError):
    """No broker serves the topic, as far as the name servers know."""


class BrokerNotFound(RemotingError):
    """The name servers know no address for a broker of this name."""


class BrokerError(RequestRefused):
    """An answer that is no success. ``address`` is who gave it."""

    address: str = ""


class BrokerFailed(BrokerError):
    """Code 1: the broker failed at it; the remark has its own words."""


class SystemBusy(BrokerError):
    """Codes 2, 215: the broker sheds load; the same request may succeed a moment later."""


class MessageIllegal(BrokerError):
    """Code 13: too large, or malformed."""


class BrokerUnavailable(BrokerError):
    """Codes 14, 1500: the broker can't store now: disk full, read-only, or shutting down."""


class NoPermission(BrokerError):
    """Code 16."""


class TopicNotExist(BrokerError):
    """Code 17: the broker has no such topic and may not make it."""


class DataNotFound(BrokerError):
    """Codes 22, 208: no such offset, message or entry."""


class GroupNotExist(BrokerError):
    """Code 26."""


class InvalidRequest(BrokerError):
    """Codes 3, 23, 29: a name, number or filter that the broker does not take, or an unknown request."""


class ConsumerNotOnline(BrokerError):
    """Codes 206, 207: no client of that group is connected, or it did not answer."""


_CLASSES: dict[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_ERROR: BrokerFailed,
    ResponseCode.SYSTEM_BUSY: SystemBusy,
    ResponseCode.FLOW_CONTROL: SystemBusy,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: InvalidRequest,
    ResponseCode.MESSAGE_ILLEGAL: MessageIllegal,
    ResponseCode.SERVICE_NOT_AVAILABLE: BrokerUnavailable,
    ResponseCode.GO_AWAY: BrokerUnavailable,
    ResponseCode.NO_PERMISSION: NoPermission,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotExist,
    ResponseCode.QUERY_NOT_FOUND: DataNotFound,
    ResponseCode.NO_MESSAGE: DataNotFound,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: InvalidRequest,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotExist,
    ResponseCode.INVALID_PARAMETER: InvalidRequest,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerNotOnline,
    ResponseCode.CONSUME_MSG_TIMEOUT: ConsumerNotOnline,
}


def refusal(answer: Command, address: str) -> BrokerError:
    """The error that an answer stands for."""
    kind = _CLASSES.get(answer.code, BrokerError)
    remark = (answer.remark or "").partition("\nSee http")[0].strip()
    error = kind(answer.code, remark or _name(answer.code), answer.fields)
    error.address = address
    error.message = f"{address} answered {_name(answer.code)} ({answer.code}){': ' if remark else ''}{remark}"
    return error


def _name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return "an unknown code"
