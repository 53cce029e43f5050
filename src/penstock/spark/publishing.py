"""From staged files into the log: all of them or none, whatever is killed on the way.

1. The store is opened: from here on nobody else writes.
2. What an earlier publication left behind is settled.
3. The journal says what is about to be published and where in the log it begins.
4. The records are appended, but for length and magic of the first one, and synced. To everybody who opens the
   log, Penstock or RocketMQ, it ends before them.
5. The first record gets its length and magic, and is synced: now all of it is published.
6. The marker, for a writer with a key, and then the journal say that it is done.
7. The store is closed, which makes queues lead to the records; journal and staged files go.

The log itself says whether a publication was made, so staged files need not outlive a power failure, and are
not synced. What a crash before 5 left behind the end of the log is cut off by whoever opens the sink next.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock._native.prepared import Prepared
from penstock.errors import CorruptFile, StoreError, StoreLocked
from penstock.files.disk import DiskStorage
from penstock.spark.rollback import is_shown, masked_crc, roll_back
from penstock.spark.staging import Block, BlockMemory, StagedRun, StagingArea

if TYPE_CHECKING:
    from penstock.store.messagestore import MessageStore

STEPS = ("opened", "journalled", "begun", "appended", "synced", "shown", "marked", "done", "closed", "tidied")
"""The places between two steps of a publication, in order. Tests end the process at each of them."""

SYNC_BYTES = 32 << 20
VERSION = 2

Step = Callable[[str], None]


class Publication(msgspec.Struct, frozen=True):
    """One write. ``key`` and ``number`` identify it over restarts: numbers of a key only grow.

    ``begin``: where the log ended before it. ``first``: a checksum by which its first record is known.
    """

    write: str
    runs: list[StagedRun]
    key: str | None = None
    number: int = 0
    begin: int = 0
    first: int = 0
    done: bool = False
    version: int = VERSION

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
    hint = "see what is in the log, then remove it"
    try:
        journal = msgspec.json.decode(area.journal.read_bytes(), type=Publication)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptFile(area.journal, found=f"no journal: {error}", hint=hint) from error
    if journal.version != VERSION:
        raise CorruptFile(area.journal, found=f"a journal of version {journal.version}", hint=hint)
    return journal


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


def settle(root: str | Path, *, given_up: bool = False) -> str | None:
    """Take back or record what a crash interrupted: what became of it, None when there was nothing.

    ``given_up``: whoever waited for it was told that it failed, so it is rolled back while that is possible.
    """
    area = StagingArea(root)
    left = read_journal(area)
    if left is None:
        return None
    done = "published"
    if not is_published(area, left) and (given_up or not left.done):
        shown = left.done or is_shown(area, left.begin, left.first)
        if given_up or not shown:
            try:
                rolled_back = roll_back(area, left.begin, left.runs)
            except StoreLocked as error:
                raise _locked(area, error) from error
            # If it was not cut off, the store was opened since: that ended the log before records not shown.
            done = "rolled back" if rolled_back or not shown else done
        if done == "published":
            _mark(area, left)
    area.journal.unlink()
    DiskStorage().sync_dir(area.folder)
    area.remove(left.runs)
    return done


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
    for run in publication.runs:
        if not (area.staging / run.file).is_file():
            raise StoreError(
                "a staged file is gone",
                file=area.staging / run.file,
                hint="tasks and driver must see the same directory: use one that all nodes share",
            )
    with ThreadPoolExecutor(1, "read") as readers:
        blocks = _ahead(_blocks(area, publication), readers)
        first = next(blocks, None)
        planned = msgspec.structs.replace(
            publication,
            begin=store.max_physical_offset,
            first=masked_crc(first.records) if first is not None else 0,
            done=False,
        )
        DiskStorage().makedirs(area.folder)
        DiskStorage().write_atomic(area.journal, msgspec.json.encode(planned))
        step("journalled")
        prepared = Prepared()
        if first is not None:
            head = bytes(first.records[:8])
            place = _append(store, first, blocks, prepared, step)
            step("appended")
            store.flush()
            step("synced")
            store.show_record(place, head)
    step("shown")
    _mark(area, planned)
    step("marked")
    DiskStorage().write_atomic(area.journal, msgspec.json.encode(msgspec.structs.replace(planned, done=True)))
    step("done")
    store.dispatch_prepared(prepared)


def _append(
    store: MessageStore, first: Block, others: Iterator[Block], prepared: Prepared, step: Step
) -> int:
    """Append all blocks and prepare what the dispatcher will make of them. Where the held record lies.

    Meanwhile the next block is read and checked, what queues and index need is taken from the one before, and
    the disk writes what was appended.
    """
    place = -1
    with ThreadPoolExecutor(1, "prepare") as preparers, ThreadPoolExecutor(1, "sync") as syncers:
        syncing = preparing = None
        appended = 0
        for block in itertools.chain([first], others):
            store.put_records(block.records, block.slots, block.queues, held=place < 0)
            if preparing is not None:  # no more blocks are kept than the one that is at work
                preparing.result()
            preparing = preparers.submit(
                store.prepare_dispatch, prepared, block.records, block.slots, block.queues, block.notes
            )
            if place < 0:
                place = int.from_bytes(block.records[28:36], "big")
                step("begun")
            appended += len(block.records)
            if appended >= SYNC_BYTES and (syncing is None or syncing.done()):
                if syncing is not None:
                    syncing.result()
                syncing = syncers.submit(store.flush)
                appended = 0
        for working in (preparing, syncing):
            if working is not None:
                working.result()
    return place


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


def _mark(area: StagingArea, publication: Publication) -> None:
    """Say of a publication with a key that it was made."""
    if publication.key is None:
        return
    marker = Marker(
        publication.key, publication.number, publication.write, publication.records, publication.begin
    )
    DiskStorage().makedirs(area.markers)
    DiskStorage().write_atomic(area.marker_of(publication.key), msgspec.json.encode(marker))


def _locked(area: StagingArea, error: StoreLocked) -> StoreLocked:
    return StoreLocked(
        f"the store is open elsewhere, and only one process may write to it: {error.message}",
        file=area.root,
        hint="stop the broker or the program that has it open, then write again",
    )


def withdraw(root: str | Path, write: str, runs: list[StagedRun] | None = None) -> None:
    """Give up a write that was not published: nothing of it is visible after that.

    A publication that broke off is rolled back; one that was made stays if the store was opened since, for
    then it is visible already. ``runs``: remove only these staged files, not all of the write's.
    """
    area = StagingArea(root)
    left = read_journal(area)
    if left is not None and left.write == write:
        settle(root, given_up=True)
    if runs is None:
        area.forget(write)
    else:
        area.remove(runs)
