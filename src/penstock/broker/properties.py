"""The property string of a message on its way from a producer into the store (protocol 4.2)."""

from __future__ import annotations

from penstock._native.sendheader import finish_properties
from penstock.config import BrokerConfig
from penstock.message import encode_properties, parse_properties, unique_id
from penstock.message.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
)

# What asks for more than being stored. Found also inside other texts: a look at the map decides then.
_ASKING = ("DELAY\x01", "TIMER_DEL", "TRAN_MSG\x01", "INNER_", "__CRC32#")


def parse_text(text: str) -> dict[str, str]:
    """The map of a property string: entries without a name or a value are dropped."""
    return parse_properties(text.encode())


class PropertyRules:
    """What this broker adds to the properties of every message."""

    def __init__(self, config: BrokerConfig) -> None:
        self._added = {
            PROPERTY_MSG_REGION: config.region_id,
            PROPERTY_TRACE_SWITCH: "true" if config.trace_on else "false",
        }
        self._cluster = {PROPERTY_CLUSTER: config.cluster_name}
        self.suffix = encode_properties({**self._added, **self._cluster})
        """What every property string ends with."""

    def finish(self, text: str) -> tuple[bytes, str, bool, bool]:
        """The string to store, the unique key, whether it asks for more than being stored, whether to wait.

        The string a client sent is kept as it is wherever it reads the same either way.
        """
        return finish_properties(text, self.suffix) or self.rebuilt(parse_text(text))

    def rebuilt(self, properties: dict[str, str]) -> tuple[bytes, str, bool, bool]:
        """As ``finish``, from the map of the string: any string can be finished so."""
        properties.pop(PROPERTY_POP_CK, None)
        key = properties.setdefault(PROPERTY_UNIQUE_KEY, "") or unique_id()
        properties[PROPERTY_UNIQUE_KEY] = key
        properties.update(self._added)
        properties.update(self._cluster)
        encoded = encode_properties(properties)
        text = encoded.decode()
        asks = any(mark in text for mark in _ASKING)
        return encoded, key, asks, properties.get("WAIT", "").lower() != "false"

    def for_reply(self, text: str) -> dict[str, str]:
        """The map of a reply's properties, with what the broker adds (no cluster, no unique key)."""
        properties = parse_text(text)
        properties.pop(PROPERTY_POP_CK, None)
        properties.update(self._added)
        return properties
