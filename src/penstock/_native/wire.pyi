from collections.abc import Callable
from typing import Any

LANGUAGES: tuple[str, ...]
VERSION: int

class Command:
    code: int
    flag: int
    opaque: int
    version: int
    binary: bool
    language: str | int
    remark: str | None
    fields: dict[str, str]
    body: bytes | memoryview
    def __init__(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        flag: int = 0,
        opaque: int = 0,
        remark: str | None = None,
        language: str | int = "PYTHON",
        version: int = ...,
        binary: bool = False,
    ) -> None: ...
    @staticmethod
    def request(
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        oneway: bool = False,
    ) -> Command: ...
    def answer(
        self,
        code: int = 0,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        remark: str | None = None,
    ) -> Command: ...
    @property
    def is_response(self) -> bool: ...
    @property
    def is_oneway(self) -> bool: ...

def take_frames(
    data: Any, max_frame: int, max_header: int, tolerant: Callable[[bytes], Command]
) -> tuple[list[Command], int, str | None]: ...
