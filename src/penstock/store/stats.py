"""Figures of an open store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.store.messagestore import MessageStore


@dataclass(frozen=True, slots=True)
class StoreStats:
    """A snapshot; counts are since opening."""

    put_count: int
    put_bytes: int
    sync_count: int
    dispatched: int
    dispatch_behind_bytes: int
    min_physical_offset: int
    max_physical_offset: int
    flushed_where: int
    committed_where: int
    log_files: int
    queues: int
    index_files: int
    disk_used: float

    @classmethod
    def of(cls, store: MessageStore) -> StoreStats:
        parts = store._parts
        log = parts.commit_log
        return cls(
            put_count=log.appender.put_count,
            put_bytes=log.appender.put_bytes,
            sync_count=log.flusher.sync_count,
            dispatched=parts.dispatcher.native.records,
            dispatch_behind_bytes=parts.dispatcher.behind,
            min_physical_offset=log.min_offset,
            max_physical_offset=log.max_offset,
            flushed_where=log.flushed_where,
            committed_where=log.committed_where,
            log_files=len(log.files.files),
            queues=len(parts.queues),
            index_files=len(parts.index.files) if parts.index is not None else 0,
            disk_used=parts.clean.disk.used,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
