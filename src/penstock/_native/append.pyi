from collections.abc import Callable, Iterable
from typing import Any

from penstock._native.encode import Encoder
from penstock._native.flush import Flusher
from penstock._native.mapping import Mapping
from penstock._native.putresult import PutResults
from penstock._native.queue import Queue
from penstock._native.signal import Signal

HOOK: int
ROLLED: int
MAPPED: int
WRITTEN: int

class Appender:
    mode: int
    sync: bool
    sync_timeout: float
    unavailable: str | None
    busy_after_ms: int
    def __init__(
        self, encoder: Encoder, flusher: Flusher, signal: Signal, roll: Callable[[], str | None]
    ) -> None: ...
    @property
    def put_count(self) -> int: ...
    @property
    def put_bytes(self) -> int: ...
    @property
    def current(self) -> Mapping | None: ...
    @property
    def end_offset(self) -> int: ...
    def use_file(self, mapping: Mapping | None) -> None: ...
    def put(
        self,
        message: Any,
        now: int = -1,
        hooked: bool = False,
        wait: bool = True,
        locked: bool = False,
        messages: int = 1,
    ) -> Any: ...
    def put_many(
        self,
        messages: Iterable[Any],
        now: int = -1,
        hooked: bool = False,
        wait: bool = True,
        whole: bool = False,
    ) -> Any: ...
    def put_batch(self, message: Any, body: Any, now: int = -1, wait: bool = True) -> PutResults: ...
    def put_records(
        self, records: Any, slots: Any, queues: list[Queue], now: int = -1, held: bool = False
    ) -> tuple[int, str | None]: ...
    def lock(self) -> None: ...
    def unlock(self) -> None: ...
