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
from penstock.config.security import SecuritySettings
from penstock.config.tls import ClientTlsSettings, ServerTlsSettings
from penstock.errors import ConfigError

_INT32 = 2**31 - 1
_DAY_MS = 86_400_000
_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,100}")


def _setting(default: Any, low: int = 0, high: int = _INT32) -> Any:
    return dataclasses.field(default=default, metadata={"bounds": (low, high)})


def _secret() -> Any:
    return dataclasses.field(default="", repr=False, metadata={"bounds": (0, 0), "secret": True})


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
    # RocketMQ refuses SQL filters until told otherwise; here they work.
    enable_property_filter: bool = _setting(True)
    enable_calc_filter_bit_map: bool = _setting(False)
    expect_consumer_num_use_filter: int = _setting(32, 1, 65_536)
    max_error_rate_of_bloom_filter: int = _setting(20, 1, 99)
    filter_data_clean_time_span_ms: int = _setting(_DAY_MS, 1, 365 * _DAY_MS)
    # Ours alone: requests that wait for a message cost memory; one more than this is answered at once.
    max_held_pulls: int = _setting(200_000, 1)

    # -- clients ------------------------------------------------------------------------------------------
    channel_expired_timeout_ms: int = _setting(120_000, 100, _DAY_MS)
    rebalance_lock_max_live_time_ms: int = _setting(60_000, 100, _DAY_MS)

    # Ours alone: a port takes so many connections, so many of them from one address (0: no other bound), and
    # of each connection and each account so many requests in a second (0: as many as come).
    max_connections: int = _setting(20_000, 1)
    max_connections_per_address: int = _setting(0)
    connection_requests_per_second: int = _setting(0)
    account_requests_per_second: int = _setting(0)

    # -- TLS ----------------------------------------------------------------------------------------------
    # RocketMQ makes a certificate for itself when it has none; here there is no TLS without one.
    tls_server_mode: str = _setting("permissive")
    tls_server_cert_path: str = _setting("")
    tls_server_key_path: str = _setting("")
    tls_server_key_password: str = _secret()
    tls_server_need_client_auth: str = _setting("none")
    tls_server_trust_cert_path: str = _setting("")
    # Towards name servers. Unlike RocketMQ's clients, ours look whom they talk to.
    tls_enable: bool = _setting(False)
    tls_client_auth_server: bool = _setting(True)
    tls_client_trust_cert_path: str = _setting("")
    tls_client_cert_path: str = _setting("")
    tls_client_key_path: str = _setting("")
    tls_client_key_password: str = _secret()

    # -- accounts -----------------------------------------------------------------------------------------
    # 4.x has one switch; 5.x has two: who are you, and may you. Any of them needs the file.
    acl_enable: bool = _setting(False)
    authentication_enabled: bool = _setting(False)
    authorization_enabled: bool = _setting(False)
    # Ours alone: JSON, or a plain_acl.yml.
    accounts_file: str = _setting("")
    # How the broker signs what it tells name servers: {"accessKey": …, "secretKey": …}.
    inner_client_authentication_credentials: str = _secret()

    # -- leaving ------------------------------------------------------------------------------------------
    # Ours alone: replies that are owed at a stop have so long to reach the clients.
    drain_timeout_ms: int = _setting(10_000, 0, _DAY_MS)

    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)
    remoting: RemotingSettings = dataclasses.field(default_factory=RemotingSettings)

    def __post_init__(self) -> None:
        for name in BROKER_TYPES:
            check_broker(name, getattr(self, name), source="code")
        _ = self.server_tls  # settings that do not fit together are said now
        if self.asks_for_accounts and not self.accounts_file:
            raise ConfigError(
                "accounts are asked for and no file has them",
                key="accounts_file",
                hint="`penstock account add` makes one; name it in accounts_file",
            )

    def replace(self, **changes: Any) -> BrokerConfig:
        """A copy with some settings changed, checked like any other."""
        return dataclasses.replace(self, **changes)

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers outside this process."""
        return tuple(part.strip() for part in self.namesrv_addr.split(";") if part.strip())

    @property
    def server_tls(self) -> ServerTlsSettings:
        """How the ports speak TLS."""
        return ServerTlsSettings(
            mode=self.tls_server_mode,
            cert_path=self.tls_server_cert_path,
            key_path=self.tls_server_key_path,
            key_password=self.tls_server_key_password,
            client_auth=self.tls_server_need_client_auth,
            trust_path=self.tls_server_trust_cert_path,
        )

    @property
    def client_tls(self) -> ClientTlsSettings | None:
        """How name servers are spoken to; None: without TLS."""
        if not self.tls_enable:
            return None
        return ClientTlsSettings(
            trust_path=self.tls_client_trust_cert_path,
            cert_path=self.tls_client_cert_path,
            key_path=self.tls_client_key_path,
            key_password=self.tls_client_key_password,
            verify=self.tls_client_auth_server,
        )

    @property
    def asks_for_accounts(self) -> bool:
        """Whether every request must say whose it is."""
        return self.acl_enable or self.authentication_enabled or self.authorization_enabled

    @property
    def security(self) -> SecuritySettings:
        """What the ports ask of those who connect."""
        return SecuritySettings(
            tls=self.server_tls,
            accounts_file=self.accounts_file if self.asks_for_accounts else "",
            authorize=self.acl_enable or self.authorization_enabled,
            cluster=self.cluster_name,
            connection_requests_per_second=self.connection_requests_per_second,
            account_requests_per_second=self.account_requests_per_second,
        )

    @property
    def server_limits(self) -> RemotingSettings:
        """What connections to this broker may cost."""
        return dataclasses.replace(
            self.remoting,
            max_connections=min(self.max_connections, self.remoting.max_connections),
            max_connections_per_address=self.max_connections_per_address
            or self.remoting.max_connections_per_address,
        )

    @property
    def advertised_host(self) -> str:
        """The address that clients connect to."""
        return self.broker_ip or self.listen_host


_PLAIN = [field for field in dataclasses.fields(BrokerConfig) if field.name not in ("store", "remoting")]
_BOUNDS: dict[str, tuple[int, int]] = {field.name: field.metadata["bounds"] for field in _PLAIN}
BROKER_SECRETS = frozenset(field.name for field in _PLAIN if field.metadata.get("secret"))
"""Settings that are never shown."""
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
    "enableCalcFilterBitMap": "enable_calc_filter_bit_map",
    "expectConsumerNumUseFilter": "expect_consumer_num_use_filter",
    "maxErrorRateOfBloomFilter": "max_error_rate_of_bloom_filter",
    "filterDataCleanTimeSpan": "filter_data_clean_time_span_ms",
    "channelExpiredTimeout": "channel_expired_timeout_ms",
    "rocketmq.broker.rebalance.lockMaxLiveTime": "rebalance_lock_max_live_time_ms",
    "tls.server.mode": "tls_server_mode",
    "tls.server.certPath": "tls_server_cert_path",
    "tls.server.keyPath": "tls_server_key_path",
    "tls.server.keyPassword": "tls_server_key_password",
    "tls.server.need.client.auth": "tls_server_need_client_auth",
    "tls.server.trustCertPath": "tls_server_trust_cert_path",
    "tls.enable": "tls_enable",
    "tls.client.authServer": "tls_client_auth_server",
    "tls.client.trustCertPath": "tls_client_trust_cert_path",
    "tls.client.certPath": "tls_client_cert_path",
    "tls.client.keyPath": "tls_client_key_path",
    "tls.client.keyPassword": "tls_client_key_password",
    "aclEnable": "acl_enable",
    "authenticationEnabled": "authentication_enabled",
    "authorizationEnabled": "authorization_enabled",
    "innerClientAuthenticationCredentials": "inner_client_authentication_credentials",
}


def check_broker(field: str, value: Any, *, source: str) -> Any:
    """The value itself, or ConfigError naming the key and where the value came from."""

    def wrong(why: str, hint: str = "") -> ConfigError:
        shown = "…" if field in BROKER_SECRETS else repr(value)
        return ConfigError(f"{field} = {shown} (from {source}): {why}", key=field, source=source, hint=hint)

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
