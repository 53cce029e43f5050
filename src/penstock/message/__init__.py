"""Messages, their properties, flags, ids and names."""

from penstock.message.message import Message

__all__ = ["Message"]
