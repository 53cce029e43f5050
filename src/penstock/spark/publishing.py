"""From staged files into the log: all of them or none, whatever is killed on the way.

1. The store is opened: from here on nobody else writes.
2. What an earlier publication left behind is settled.
3. The journal says what is about to be published and where in the log it begins.
4. The records are appended and synced.
5. The marker, for a writer with a key, and then the journal say that it is done: now it is published.
6. The store is closed, which makes the records visible; journal and staged files go.

A crash before 5 leaves a journal that is not done. Whoever opens the sink next cuts the records off the log
again, if nobody can have seen them. If the store was opened since, they are visible: then the log is compared
with the staged files, and what is missing is appended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock._native.prepared import Prepared
from penstock._native.record import walk
from penstock._native.staged import match_records
from penstock.errors import CorruptFile, StoreError, StoreLocked
from penstock.files.disk import DiskStorage
from penstock.spark.rollback import roll_back
from penstock.spark.staging import Block, BlockMemory, StagedRun, StagingArea

if TYPE_CHECKING:
    from penstock.store.messagestore import MessageStore

STEPS = ("opened", "journalled", "begun", "appended", "synced", "marked", "done", "closed", "tidied")
"""The places between two steps of a publication, in order. Tests end the process at each of them."""

SYNC_BYTES = 32 << 20

Step = Callable[[str], None]


class Publication(msgspec.Struct, frozen=True):
    """One write. ``key`` and ``number`` identify it over restarts: numbers of a key only grow."""

    write: str
    runs: list[StagedRun]
    key: str | None = None
    number: int = 0
    begin: int = 0
    done: bool = False
    version: int = 1

    @property
    def records(self) -> int:
        return sum(run.records for run in self.runs)


class Marker(msgspec.Struct, frozen=True):
    """The last publication of a key."""

    key: str
    number: int
    write: str
    records: int
    begin: int
    end: int


def no_step(_: str) -> None:
    """Nothing happens between two steps."""


def read_marker(area: StagingArea, key: str) -> Marker | None:
    path = area.marker_of(key)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Marker)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptFile(path, found=f"no marker: {error}", hint="remove it if the query is gone") from error


def read_journal(area: StagingArea) -> Publication | None:
    try:
        return msgspec.json.decode(area.journal.read_bytes(), type=Publication)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptFile(
            area.journal, found=f"no journal: {error}", hint="see what is in the log, then remove it"
        ) from error


def is_published(area: StagingArea, publication: Publication) -> bool:
    """Whether a writer with a key has published this, or something later, already."""
    marker = read_marker(area, publication.key) if publication.key is not None else None
    return marker is not None and marker.key == publication.key and marker.number >= publication.number


def publish(root: str | Path, publication: Publication, *, step: Step = no_step) -> bool:
    """Make staged runs part of the log. False when an earlier call for the same key has done that."""
    area = StagingArea(root)
    settle(root)
    with ThreadPoolExecutor(1, "tidy") as tidying, owned(area) as store:
        step("opened")
        if read_journal(area) is not None:
            raise StoreError("another write is being published", file=area.journal, hint="try again")
        fresh = not is_published(area, publication)
        if fresh:
            _publish(area, store, publication, step)
            # Queues lead to the records now, so nothing can be rolled back and nobody needs the staged ones.
            # Closing waits for the disk, and so does removing.
            tidying.submit(area.remove, publication.runs)
    step("closed")
    if fresh:
        # Not synced: a journal that says "done" and comes back after a power failure is only removed again.
        area.journal.unlink()
    area.remove(publication.runs)
    area.forget(publication.write)
    step("tidied")
    return fresh


def settle(root: str | Path, *, given_up: bool = False, step: Step = no_step) -> str | None:
    """Roll back or finish what a crash interrupted: what became of it, None when there was nothing.

    ``given_up``: whoever waited for it was told that it failed, so it is rolled back while that is possible.
    """
    area = StagingArea(root)
    left = read_journal(area)
    if left is None:
        return None
    done = "published"
    if not is_published(area, left) and (given_up or not left.done):
        try:
            rolled_back = roll_back(area, left.begin, left.runs)
        except StoreLocked as error:
            raise _locked(area, error) from error
        if rolled_back:
            done = "rolled back"
        elif not left.done:
            done = "finished"
            _finish(area, left, step)
    area.journal.unlink()
    DiskStorage().sync_dir(area.folder)
    area.remove(left.runs)
    return done


def _finish(area: StagingArea, left: Publication, step: Step) -> None:
    try:
        with owned(area) as store:
            prepared = _append(area, store, left, step, already=_present(area, store, left))
            _decide(area, store, left, step)
            store.dispatch_prepared(prepared)
    except CorruptFile as error:
        raise CorruptFile(
            error.file or area.journal,
            found=f"{error.found}; an interrupted write begins at offset {left.begin} of the log",
            hint=f"remove {area.journal} to leave the log as it is, then write the rest again",
        ) from error


@contextlib.contextmanager
def owned(area: StagingArea) -> Iterator[MessageStore]:
    """The store, opened without threads of its own: what is appended becomes visible when it is closed."""
    from penstock.store.opening import open_writable

    try:
        store = open_writable(area.root, flush="sync", background=False)
    except StoreLocked as error:
        raise _locked(area, error) from error
    try:
        yield store
    except BaseException:
        store.abandon()
        raise
    store.close()


def _publish(area: StagingArea, store: MessageStore, publication: Publication, step: Step) -> None:
    planned = msgspec.structs.replace(publication, begin=store.max_physical_offset, done=False)
    for run in planned.runs:
        if not (area.staging / run.file).is_file():
            raise StoreError(
                "a staged file is gone",
                file=area.staging / run.file,
                hint="tasks and driver must see the same directory: use one that all nodes share",
            )
    DiskStorage().makedirs(area.folder)
    DiskStorage().write_atomic(area.journal, msgspec.json.encode(planned))
    step("journalled")
    prepared = _append(area, store, planned, step, already=0)
    _decide(area, store, planned, step)
    store.dispatch_prepared(prepared)


def _append(
    area: StagingArea, store: MessageStore, publication: Publication, step: Step, *, already: int
) -> Prepared:
    """Append what is not in the log yet: all but the first ``already`` records. What the dispatcher will make
    of them.

    Meanwhile the next block is read and checked, what queues and index need is taken from the one before, and
    the disk writes what was appended.
    """
    begun = False
    prepared = Prepared()
    with (
        ThreadPoolExecutor(1, "read") as readers,
        ThreadPoolExecutor(1, "prepare") as preparers,
        ThreadPoolExecutor(1, "sync") as syncers,
    ):
        syncing = preparing = None
        appended = 0
        for block in _ahead(_blocks(area, publication), readers):
            count = len(block.slots)
            if already >= count:
                already -= count
                continue
            skipped = _bytes_of(block.records, already)
            records, slots = block.records[skipped:], block.slots[already:]
            store.put_records(records, slots, block.queues)
            already = 0
            if preparing is not None:  # no more blocks are kept than the one that is at work
                preparing.result()
            preparing = preparers.submit(store.prepare_dispatch, prepared, records, slots, block.queues)
            if not begun:
                step("begun")
                begun = True
            appended += len(block.records) - skipped
            if appended >= SYNC_BYTES and (syncing is None or syncing.done()):
                if syncing is not None:
                    syncing.result()
                syncing = syncers.submit(store.flush)
                appended = 0
        for working in (preparing, syncing):
            if working is not None:
                working.result()
    step("appended")
    return prepared


def _blocks(area: StagingArea, publication: Publication) -> Iterator[Block]:
    """All blocks. Three are good at a time: one is read, one appended, one prepared."""
    memory = BlockMemory(3)
    for run in publication.runs:
        yield from area.blocks(run, memory)


def _ahead(blocks: Iterator[Block], readers: ThreadPoolExecutor) -> Iterator[Block]:
    """The same blocks, each read while the one before it is in use."""
    coming = readers.submit(next, blocks, None)
    while (block := coming.result()) is not None:
        coming = readers.submit(next, blocks, None)
        yield block


def _bytes_of(records: memoryview, count: int) -> int:
    """Where the record behind the first ``count`` begins."""
    at = 0
    for _ in range(count):
        at += int.from_bytes(records[at : at + 4], "big")
    return at


def _decide(area: StagingArea, store: MessageStore, publication: Publication, step: Step) -> None:
    """The records are in the log: have them on disk, then say so."""
    store.flush()
    step("synced")
    disk = DiskStorage()
    if publication.key is not None:
        marker = Marker(
            publication.key,
            publication.number,
            publication.write,
            publication.records,
            publication.begin,
            store.max_physical_offset,
        )
        disk.makedirs(area.markers)
        disk.write_atomic(area.marker_of(publication.key), msgspec.json.encode(marker))
    step("marked")
    disk.write_atomic(area.journal, msgspec.json.encode(msgspec.structs.replace(publication, done=True)))
    step("done")


def _locked(area: StagingArea, error: StoreLocked) -> StoreLocked:
    return StoreLocked(
        f"the store is open elsewhere, and only one process may write to it: {error.message}",
        file=area.root,
        hint="stop the broker or the program that has it open, then write again",
    )


def _present(area: StagingArea, store: MessageStore, publication: Publication) -> int:
    """How many of the publication's records, in their order, are in the log already."""
    if store.min_physical_offset > publication.begin:
        raise StoreError(
            f"a publication was interrupted at {publication.begin}, and the log begins at"
            f" {store.min_physical_offset} now: what of it was published cannot be seen any more",
            file=area.journal,
            hint="look for its last messages, then remove the journal",
        )
    pieces = _log_pieces(store, publication.begin)
    log, present, memory = memoryview(b""), 0, BlockMemory(1)
    for run in publication.runs:
        for block in area.blocks(run, memory):
            staged = block.records
            while len(staged):
                if not len(log):
                    piece = next(pieces, None)
                    if piece is None:
                        return present
                    log = piece
                read, matched, count = match_records(log, staged)
                if not read:
                    raise CorruptFile(area.staging / run.file, found="something that is no record")
                log, staged = log[read:], staged[matched:]
                present += count
    return present


def _log_pieces(store: MessageStore, begin: int) -> Iterator[memoryview]:
    """The whole records from an offset on, a file at a time."""
    for file in store.log_files(begin):
        view = memoryview(file)
        start = max(0, begin - file.file_from)
        stop = walk(view, start, file.wrote_position, file.file_from, check_crc=False).end_position
        yield view[start:stop]


def withdraw(root: str | Path, write: str, runs: list[StagedRun] | None = None) -> None:
    """Give up a write that was not published: nothing of it is visible after that.

    A publication that broke off is rolled back; if the store was opened since, it is finished instead, since
    it is visible already. ``runs``: remove only these staged files, not all of the write's.
    """
    area = StagingArea(root)
    left = read_journal(area)
    if left is not None and left.write == write:
        settle(root, given_up=True)
    if runs is None:
        area.forget(write)
    else:
        area.remove(runs)
