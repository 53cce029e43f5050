"""The message a caller hands to a store.

``Message`` is a plain value: nothing is validated or copied here, a put answers with a status instead.
The compiled engine reads the fields by position, so their order is part of the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message to be stored.

    ``tags`` and ``keys`` win over entries of the same name in ``properties``; ``raw_properties`` wins over
    all of them. ``body`` may be any bytes-like object and must not change until the put has returned. A field
    left at its default is filled in by the store: ``born_timestamp`` with its clock, the hosts with its own
    address.
    """

    topic: str
    body: bytes | bytearray | memoryview
    tags: str | None = None
    keys: str | None = None
    queue_id: int = 0
    properties: Mapping[str, str] | None = None
    unique_key: str | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    delay_level: int = 0
    wait: bool = True
    raw_properties: bytes | None = None

    @classmethod
    def make(
        cls,
        topic: str,
        body: bytes | bytearray | memoryview | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        unique_key: str | None = None,
        delay_level: int = 0,
        wait: bool = True,
    ) -> Message:
        """A message from friendlier arguments.

        A text body is encoded as UTF-8, keys may be any iterable of strings.
        """
        if isinstance(body, str):
            body = body.encode()
        if keys is not None and not isinstance(keys, str):
            keys = " ".join(keys)
        return cls(
            topic,
            body,
            tags,
            keys,
            queue_id,
            properties,
            unique_key,
            delay_level=delay_level,
            wait=wait,
        )
