"""What a golden store's log says, read with ``penstock.format`` and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from golden_store import GoldenStore
from penstock.format.dispatch import IndexWrite, UnitWrite, index_keys, queue_writes
from penstock.format.indexfile import IndexOracle
from penstock.format.javahash import key_hash
from penstock.format.record import RecordFields
from penstock.format.walk import WalkResult, walk
from penstock.message.sysflag import has_index_entry, has_queue_unit


class GoldenLog:
    """The records of a golden store and what the dispatcher makes of them."""

    def __init__(self, store: GoldenStore) -> None:
        self.store = store
        self.manifest = store.manifest

    @cached_property
    def walks(self) -> list[tuple[int, bytes, WalkResult]]:
        """First offset, bytes and walk of each log file."""
        by_property = bool(self.manifest["config"].get("forceVerifyPropCRC"))
        return [
            (base, data, walk(data, 0, len(data), base, check_property_crc=by_property, check_torn=True))
            for base, data in self.store.log_files()
        ]

    @cached_property
    def records(self) -> list[RecordFields]:
        """Every record up to the end of the log: the first file that no blank closes is the last."""
        found: list[RecordFields] = []
        for _, _, result in self.walks:
            found += result.records
            if result.stop != "blank":
                break
        return found

    @property
    def by_offset(self) -> dict[int, RecordFields]:
        return {record.physical_offset: record for record in self.records}

    def bytes_at(self, offset: int, size: int) -> bytes:
        base, data, _ = next(w for w in self.walks if w[0] <= offset < w[0] + len(w[1]))
        return data[offset - base : offset - base + size]

    def unit_writes(self) -> Iterator[tuple[RecordFields, UnitWrite]]:
        for record in self.records:
            if has_queue_unit(record.sys_flag):
                for write in queue_writes(
                    record,
                    batch_topics=self.manifest["batchQueueTopics"],
                    multi_dispatch=bool(self.manifest["config"].get("enableMultiDispatch")),
                ):
                    yield record, write

    @property
    def indexes_tags(self) -> bool:
        return not str(self.manifest["rocketmq"]).startswith("4.")

    def index_writes(self) -> Iterator[list[IndexWrite]]:
        """The index keys of each record, none for a record that is not indexed."""
        for record in self.records:
            keys = index_keys(record, tags=self.indexes_tags) if has_index_entry(record.sys_flag) else []
            yield [IndexWrite(key_hash(key), record.physical_offset, record.store_timestamp) for key in keys]

    def build_index(self) -> list[IndexOracle]:
        """The index files of the whole log, as a store that was never killed writes them."""
        size = self.store.setting("maxHashSlotNum", 0), self.store.setting("maxIndexNum", 0)
        files: list[IndexOracle] = []

        def writable() -> IndexOracle:
            if not files:
                files.append(IndexOracle(*size))
            elif files[-1].is_full:
                files.append(IndexOracle.following(files[-1]))
            return files[-1]

        for keys in self.index_writes():
            writable()  # asked for before the keys are looked at, so a record without keys rolls the file too
            for key in keys:
                assert writable().put_hash(*key)
        return files

    def read_index(self) -> list[IndexOracle]:
        """The index files on disk, oldest first."""
        size = self.store.setting("maxHashSlotNum", 0), self.store.setting("maxIndexNum", 0)
        return [IndexOracle(*size, file.read_bytes()) for file in self.store.files("index")]
