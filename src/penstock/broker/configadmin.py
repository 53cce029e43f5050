"""Settings over the network: shown to everybody, changed only where it is harmless (codes 25 and 26).

A remote "update config" that takes any key became remote code execution in RocketMQ twice (CVE-2023-33246,
CVE-2023-37582). Here a fixed list of keys can be set. None is a path, an address or a command; each has its
type and its range. They hold until the broker stops: nothing is written to a file.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.config.aliases import ALIASES
from penstock.config.broker import BROKER_ALIASES, BROKER_SECRETS, BROKER_TYPES, check_broker
from penstock.config.properties import parse_properties
from penstock.errors import ConfigError, RequestRefused
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.dataversion import DataVersion

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

SETTABLE = frozenset(
    {
        "auto_create_subscription_group",
        "auto_create_topic_enable",
        "broker_permission",
        "channel_expired_timeout_ms",
        "lite_pull_message_enable",
        "long_polling_enable",
        "max_held_pulls",
        "recall_message_enable",
        "reject_transaction_message",
        "short_polling_time_ms",
        "start_accept_send_request_ms",
        "store_reply_message_enable",
    }
)
"""What a remote request may change."""
# Not ours, and never to be taken for harmless: RocketMQ's names for files and programs.
SUSPICIOUS = ("path", "home", "dir", "script", "command", "blacklist", "file")
MAX_TEXT = 65536
_FIELDS = {**ALIASES, **BROKER_ALIASES}
_JAVA_NAMES = {field: name for name, field in _FIELDS.items()}
_KNOWN = {*BROKER_TYPES, *ALIASES.values()}


class ConfigAdmin:
    """Answers 25 and 26."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._version = DataVersion()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.show,
        }

    def update(self, connection: Connection, request: Command) -> Command:
        """All of the request or nothing: who asks for what can't be set shall not believe that it was."""
        if len(request.body) > MAX_TEXT:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        try:
            given = parse_properties(str(request.body, "utf-8"))
        except ValueError:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
        fields = {key: _FIELDS.get(key, key) for key in given}
        for key, field in fields.items():
            if field not in SETTABLE and (field in _KNOWN or _suspicious(key)):
                raise RequestRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        for key, field in fields.items():
            if field not in SETTABLE:
                raise RequestRefused(ResponseCode.NO_PERMISSION, f"{key[:80]} is no setting of this broker")
        changes = {field: _value(field, given[key]) for key, field in fields.items()}
        if changes:
            self._apply(changes)
        return request.answer(0)

    def _apply(self, changes: dict[str, Any]) -> None:
        broker = self._broker
        broker.apply_settings(broker.config.replace(**changes))
        self._version = self._version.next(broker.clock.now_ms())

    def show(self, connection: Connection, request: Command) -> Command:
        config = self._broker.config
        values: dict[str, Any] = {}
        for part in (config.store, config):
            for field in dataclasses.fields(part):
                if field.name not in ("store", "remoting") and field.name not in BROKER_SECRETS:
                    values[_JAVA_NAMES.get(field.name, field.name)] = getattr(part, field.name)
        values |= {"brokerId": 0, "brokerRole": "ASYNC_MASTER"}
        lines = [f"{key}={_shown(key, values[key])}\n" for key in sorted(values)]
        version = self._version
        fields = {
            "version": f'{{"counter":{version.counter},"stateVersion":{version.state_version},'
            f'"timestamp":{version.timestamp}}}'
        }
        return request.answer(0, fields, "".join(lines).encode())


def _value(field: str, text: str) -> Any:
    value: Any = text.strip()
    if BROKER_TYPES[field] is bool and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    elif BROKER_TYPES[field] is int and value.removeprefix("-").isdecimal() and len(value) < 20:
        value = int(value)
    try:
        return check_broker(field, value, source="a remote request")
    except ConfigError as error:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, error.message) from None


def _suspicious(key: str) -> bool:
    small = key.lower()
    return any(word in small for word in SUSPICIOUS)


def _shown(key: str, value: Any) -> str:
    if key == "flushDiskType":
        return "SYNC_FLUSH" if value == "sync" else "ASYNC_FLUSH"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
