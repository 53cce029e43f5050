from collections.abc import Callable

from penstock.message import Message

def unique_keys(begin: str, first: int, count: int) -> list[str]: ...
def split_batch(body: bytes | bytearray | memoryview) -> list[tuple[int, bytes, bytes]]: ...

class BatchWriter:
    def __init__(
        self, message_type: type[Message], describe: Callable[[Message, str, str], tuple[bytes, str]]
    ) -> None: ...
    def join(
        self, messages: list[Message], first: int, keys: list[str], topic: str, most: int
    ) -> tuple[bytes, int]: ...
