from collections.abc import Callable, Iterable

class Selection:
    def __init__(
        self,
        *,
        queues: Iterable[tuple[str, int, int, int, int, int]] | None = None,
        topics: Iterable[str] | None = None,
        matches: Callable[[str], bool] | None = None,
        queued: bool = False,
        tags: Iterable[str] | None = None,
        keys: Iterable[str] | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> None: ...
    def taken(self) -> list[tuple[str, int, int]]: ...
