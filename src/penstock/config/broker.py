"""Every setting of a broker beside those of its store: name, default, range.

Names are RocketMQ's in snake case, with the unit at the end where it is not plain. Defaults are RocketMQ's,
except where a comment says otherwise.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from penstock.config.remoting import RemotingSettings
from penstock.config.schema import StoreConfig
from penstock.errors import ConfigError

_INT32 = 2**31 - 1
_DAY_MS = 86_400_000
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,100}")


def _setting(default: Any, low: int = 0, high: int = _INT32) -> Any:
    return dataclasses.field(default=default, metadata={"bounds": (low, high)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker. Checked when made: a wrong value raises ConfigError."""

    # -- who and where ------------------------------------------------------------------------------------
    # RocketMQ takes the host's name; a container has another one after each start, and clients see it.
    broker_name: str = _setting("broker-a")
    cluster_name: str = _setting("DefaultCluster")
    # RocketMQ listens on every address; here loopback unless told otherwise.
    listen_host: str = _setting("127.0.0.1")
    listen_port: int = _setting(10911, 0, 65535)
    # The address that clients are told, and that message ids carry; empty: the one that is listened on.
    broker_ip: str = _setting("")
    # Name servers to register with, "host:port;host:port"; empty: only the one inside this process.
    namesrv_addr: str = _setting("")
    namesrv_port: int = _setting(9876, 0, 65535)
    namesrv_embedded: bool = _setting(True)
    # Port of the web page with health and metrics; 0 takes a free one, -1 has none.
    http_port: int = _setting(-1, -1, 65535)

    store_path: str = _setting("penstock-store")

    # -- topics and groups --------------------------------------------------------------------------------
    auto_create_topic_enable: bool = _setting(True)
    auto_create_subscription_group: bool = _setting(True)
    default_topic_queue_nums: int = _setting(8, 1, 65536)
    broker_permission: int = _setting(6, 0, 7)
    region_id: str = _setting("DefaultRegion")
    trace_on: bool = _setting(True)
    trace_topic_enable: bool = _setting(False)

    # -- sending ------------------------------------------------------------------------------------------
    reject_transaction_message: bool = _setting(False)
    store_reply_message_enable: bool = _setting(True)
    recall_message_enable: bool = _setting(False)
    start_accept_send_request_ms: int = _setting(0, 0, 2**62)

    # -- consuming ----------------------------------------------------------------------------------------
    lite_pull_message_enable: bool = _setting(True)
    long_polling_enable: bool = _setting(True)
    short_polling_time_ms: int = _setting(1000, 1, _DAY_MS)
    enable_property_filter: bool = _setting(False)
    # Ours alone: requests that wait for a message cost memory; one more than this is answered at once.
    max_held_pulls: int = _setting(200_000, 1)

    # -- clients ------------------------------------------------------------------------------------------
    channel_expired_timeout_ms: int = _setting(120_000, 100, _DAY_MS)
    rebalance_lock_max_live_time_ms: int = _setting(60_000, 100, _DAY_MS)

    # -- leaving ------------------------------------------------------------------------------------------
    # Ours alone: replies that are owed at a stop have so long to reach the clients.
    drain_timeout_ms: int = _setting(10_000, 0, _DAY_MS)

    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)
    remoting: RemotingSettings = dataclasses.field(default_factory=RemotingSettings)

    def __post_init__(self) -> None:
        for name in BROKER_TYPES:
            check_broker(name, getattr(self, name), source="code")

    def replace(self, **changes: Any) -> BrokerConfig:
        """A copy with some settings changed, checked like any other."""
        return dataclasses.replace(self, **changes)

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers outside this process."""
        return tuple(part.strip() for part in self.namesrv_addr.split(";") if part.strip())

    @property
    def advertised_host(self) -> str:
        """The address that clients connect to."""
        return self.broker_ip or self.listen_host


_PLAIN = [field for field in dataclasses.fields(BrokerConfig) if field.name not in ("store", "remoting")]
_BOUNDS: dict[str, tuple[int, int]] = {field.name: field.metadata["bounds"] for field in _PLAIN}
BROKER_TYPES: dict[str, type] = {field.name: type(field.default) for field in _PLAIN}

BROKER_ALIASES: dict[str, str] = {
    "brokerName": "broker_name",
    "brokerClusterName": "cluster_name",
    "bindAddress": "listen_host",
    "listenPort": "listen_port",
    "brokerIP1": "broker_ip",
    "namesrvAddr": "namesrv_addr",
    "metricsPromExporterPort": "http_port",
    "storePathRootDir": "store_path",
    "autoCreateTopicEnable": "auto_create_topic_enable",
    "autoCreateSubscriptionGroup": "auto_create_subscription_group",
    "defaultTopicQueueNums": "default_topic_queue_nums",
    "brokerPermission": "broker_permission",
    "regionId": "region_id",
    "traceOn": "trace_on",
    "traceTopicEnable": "trace_topic_enable",
    "rejectTransactionMessage": "reject_transaction_message",
    "storeReplyMessageEnable": "store_reply_message_enable",
    "recallMessageEnable": "recall_message_enable",
    "startAcceptSendRequestTimeStamp": "start_accept_send_request_ms",
    "litePullMessageEnable": "lite_pull_message_enable",
    "longPollingEnable": "long_polling_enable",
    "shortPollingTimeMills": "short_polling_time_ms",
    "enablePropertyFilter": "enable_property_filter",
    "channelExpiredTimeout": "channel_expired_timeout_ms",
}


def check_broker(field: str, value: Any, *, source: str) -> Any:
    """The value itself, or ConfigError naming the key and where the value came from."""

    def wrong(why: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{field} = {value!r} (from {source}): {why}", key=field, source=source, hint=hint)

    expected, (low, high) = BROKER_TYPES[field], _BOUNDS[field]
    actual: type = type(value)  # not isinstance: True is no number here
    if actual is not expected:
        raise wrong(f"must be {_TYPE_NAMES[expected]}")
    if expected is int and not low <= value <= high:
        raise wrong(f"must be between {low} and {high}")
    if field in ("broker_name", "cluster_name") and not _NAME.fullmatch(value):
        # Both become topics of the broker, and so folders.
        raise wrong("must be up to 100 letters, digits, '%', '|', '-' and '_'")
    if field in ("listen_host", "broker_ip") and value:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise wrong("must be an address", "such as 127.0.0.1, or 0.0.0.0 for every interface") from None
    if field == "store_path" and (not value or "\0" in value):
        raise wrong("must be a directory")
    if field == "region_id" and (not value or not value.isprintable()):
        raise wrong("must be a word")
    if field == "namesrv_addr" and value:
        for part in value.split(";"):
            host, colon, port = part.strip().rpartition(":")
            if part.strip() and not (colon and host and port.isascii() and port.isdigit()):
                raise wrong("must be host:port, several separated by ;", "such as 127.0.0.1:9876")
    return value


_TYPE_NAMES = {int: "a whole number", bool: "true or false", str: "text"}
