"""The file ``config/timercheck``: how far the timer got (store format, section 15.6)."""

from __future__ import annotations

from penstock.files.storage import SparseFile, Storage
from penstock.format.timerunit import (
    TIMER_CHECKPOINT_SIZE,
    TIMER_CHECKPOINT_USED,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
)
from penstock.store.timerlog import make_durable


class TimerCheckpointFile:
    """One small file, written in place.

    All fields lie within the first sector, which a disk writes whole. Saving comes last of a flush: each
    field speaks of things that are durable by then.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._file: SparseFile | None = None

    def load(self) -> TimerCheckpoint:
        """What was saved last; all zeros when nothing ever was."""
        if not self._storage.exists(self._path):
            return TimerCheckpoint()
        return decode_timer_checkpoint(
            self._storage.read_file(self._path).ljust(TIMER_CHECKPOINT_USED, b"\0")
        )

    def save(self, checkpoint: TimerCheckpoint) -> None:
        """Make these values durable."""
        if self._file is None:
            self._storage.makedirs(self._path.rpartition("/")[0])
            self._file = self._storage.open_sparse(self._path, TIMER_CHECKPOINT_SIZE, create=True)
        self._file.write(0, encode_timer_checkpoint(checkpoint)[:TIMER_CHECKPOINT_USED])
        make_durable(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
