from collections.abc import Callable
from typing import Any

STATUSES: tuple[str, ...]
FIELDS: tuple[str, ...]

class Encoder:
    max_message_size: int
    max_record_size: int
    property_crc: bool
    generate_unique_key: bool
    hooks: bool
    def __init__(
        self,
        message_type: type,
        find_queue: Callable[[str, int], Any],
        parse_host: Callable[[str], tuple[bytes, int]],
        own_host: bytes,
        max_message_size: int,
        unique_prefix: bytes,
    ) -> None: ...
    @property
    def reason(self) -> str | None: ...
    def forget_queues(self) -> None: ...

def month_of(now: int) -> tuple[int, int]: ...
