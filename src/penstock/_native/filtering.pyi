from collections.abc import Callable, Sequence
from typing import Any

Node = tuple[int, int, bool, Sequence[int], Sequence[bytes], Any]

class Program:
    def __new__(
        cls,
        nodes: list[Node],
        names: list[bytes],
        read_whole: Callable[[str, int], int],
        read_double: Callable[[str], float],
    ) -> Program: ...
    def matches(self, properties: bytes) -> bool: ...
    def verdict(self, properties: bytes) -> str: ...
