"""Settings of a name server that an operator may change from afar (codes 318 and 319).

Four keys by RocketMQ's names, each with its type and range, and nothing else: no path, no address, no list of
what is allowed (CVE-2023-37582). They hold until the name server stops.
"""

from __future__ import annotations

from collections.abc import Mapping

_INTERVAL = "scanNotActiveBrokerInterval"
_INTERVAL_MS = range(1000, 600_001)


class NameServerSettings:
    """The values; every one of them may be set while the name server runs."""

    def __init__(self) -> None:
        self._switches = {
            "enableAllTopicList": True,
            "orderMessageEnable": False,
            "returnOrderTopicConfigToBroker": True,
        }
        self._interval_ms = 5000

    @property
    def lists_topics(self) -> bool:
        """Whether anybody may have the list of all topics (206)."""
        return self._switches["enableAllTopicList"]

    @property
    def orders_in_routes(self) -> bool:
        """Whether a route says how the queues of an ordered topic are spread."""
        return self._switches["orderMessageEnable"]

    @property
    def orders_to_brokers(self) -> bool:
        """Whether a broker that registers is told of all ordered topics."""
        return self._switches["returnOrderTopicConfigToBroker"]

    @property
    def scan_seconds(self) -> float:
        """How often silent brokers are looked for."""
        return self._interval_ms / 1000

    def lines(self) -> dict[str, str]:
        """All of them as RocketMQ writes them."""
        switches = {key: str(value).lower() for key, value in self._switches.items()}
        return dict(sorted({**switches, _INTERVAL: str(self._interval_ms)}.items()))

    def update(self, given: Mapping[str, str]) -> None:
        """Take all of the new values or none. ValueError says which key may not be set, or not so."""
        unknown = given.keys() - self._switches.keys() - {_INTERVAL}
        if unknown:
            allowed = ", ".join([*self._switches, _INTERVAL])
            raise ValueError(f"{min(unknown)[:80]} can't be set from afar; what can: {allowed}")
        switches, interval = dict(self._switches), self._interval_ms
        for key, text in given.items():
            value = text.strip().lower()
            if key == _INTERVAL:
                if not (value.isascii() and value.isdigit() and len(value) < 10):
                    raise ValueError(f"{key} is no number of milliseconds")
                interval = int(value)
                if interval not in _INTERVAL_MS:
                    raise ValueError(f"{key} is not between {_INTERVAL_MS[0]} and {_INTERVAL_MS[-1]}")
            elif value not in ("true", "false"):
                raise ValueError(f"{key} is neither true nor false")
            else:
                switches[key] = value == "true"
        self._switches, self._interval_ms = switches, interval
