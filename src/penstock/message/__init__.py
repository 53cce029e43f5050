"""Messages, their properties, flags, ids and names.

``Message`` is what a caller hands to a store. The modules beside it hold what RocketMQ says about its parts:
``properties``, ``sysflag``, ``ids``, ``host`` and ``topic``.
"""

from penstock.message.ids import decode_message_id, offset_message_id, unique_id
from penstock.message.message import Message
from penstock.message.properties import encode_properties, parse_properties
from penstock.message.topic import validate_topic

__all__ = [
    "Message",
    "decode_message_id",
    "encode_properties",
    "offset_message_id",
    "parse_properties",
    "unique_id",
    "validate_topic",
]
