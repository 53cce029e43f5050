"""Random work on a small store over memory, and what becomes of it when the power fails at any step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from crash.ledger import Ledger, Sent
from penstock import Message, StoreConfig, open_store
from penstock.clock import ManualClock
from penstock.files.memory import MemoryStorage

ROOT = "/store"
START = 1_700_000_000_000

TINY = StoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=20 * 5,
    max_hash_slot_num=20,
    max_index_num=40,
    delete_commit_log_files_interval_ms=0,
)
"""Files so small that a few dozen messages roll each kind of them."""

POOLED = TINY.replace(transient_store_pool_enable=True, transient_store_pool_size=3)
ASYNC = TINY.replace(flush_disk_type="async")
UNINDEXED = TINY.replace(message_index_enable=False)

CONFIGS = {"sync": TINY, "async": ASYNC, "pooled": POOLED, "unindexed": UNINDEXED}

Cut = Callable[[str, MemoryStorage, Ledger], None]
"""Called wherever the power may fail: where that is, the storage, what was promised until then."""


def open_over(storage: MemoryStorage, config: StoreConfig, clock: ManualClock) -> Any:
    return open_store(ROOT, config=config, storage=storage, clock=clock, background=False)


class Workload:
    """A run of random steps: puts of all kinds, dispatching, syncing, reopening, over a few topics and
    queues.
    """

    def __init__(self, config: StoreConfig, seed: int, cut: Cut) -> None:
        self.config = config
        self.rng = random.Random(seed)
        self.clock = ManualClock(START)
        self.storage = MemoryStorage(clock=self.clock)
        self.ledger = Ledger()
        self._cut = cut
        self._count = 0
        self._unflushed: list[tuple[Sent, Any]] = []
        self.storage.on_step = self._stepped
        self.store: Any = open_over(self.storage, config, self.clock)

    def run(self, steps: int) -> None:
        kinds = [self.put] * 6 + [self.put_many] * 3 + [self.put_and_go_on] * 2 + [self.dispatch] * 3
        kinds += [self.sync_positions] * 2 + [self.flush, self.flush, self.reopen, self.kill, self.clean]
        for _ in range(steps):
            step = self.rng.choice(kinds)
            step()
            self.clock.advance(self.rng.choice((0, 1, 900, 5000)))
            self._cut(step.__name__, self.storage, self.ledger)
        self.storage.on_step = None
        self.store.abandon()

    def _stepped(self, operation: str, path: str) -> None:
        self._cut(f"{operation} {path}", self.storage, self.ledger)

    # -- steps -------------------------------------------------------------------------------------

    def _next(self) -> tuple[Sent, Message]:
        self._count += 1
        rng = self.rng
        size = rng.choice((8, 8, 40, 200, 200, 900, 3000, 5000))
        body = b"%06d" % self._count + rng.randbytes(size)
        sent = Sent(rng.choice("ABC"), rng.randrange(2), body, f"key{self._count}")
        return sent, Message(sent.topic, body, tags="tag", keys=sent.key, queue_id=sent.queue_id)

    def _promise(self, sent: Sent, result: Any) -> None:
        if self.config.flush_disk_type == "sync":
            self.ledger.acked(sent, result)
        else:
            self._unflushed.append((sent, result))

    def put(self) -> None:
        sent, message = self._next()
        self.ledger.tried(sent)
        result = self.store.put(message)
        assert result.status == "PUT_OK", result
        self._promise(sent, result)

    def put_many(self) -> None:
        batch = [self._next() for _ in range(self.rng.randrange(2, 7))]
        for sent, _ in batch:
            self.ledger.tried(sent)
        results = self.store.put_many(
            [message for _, message in batch], whole=self.rng.random() < 0.3 and len(batch) < 4
        )
        for (sent, _), result in zip(batch, results, strict=True):
            if result.ok:
                self._promise(sent, result)

    def put_and_go_on(self) -> None:
        """A message that does not wait for the disk: promised with the next one that does."""
        sent, message = self._next()
        self.ledger.tried(sent)
        quick = Message(
            message.topic, message.body, tags="tag", keys=message.keys, queue_id=message.queue_id, wait=False
        )
        result = self.store.put(quick)
        assert result.status == "PUT_OK", result
        self._unflushed.append((sent, result))

    def flush(self) -> None:
        self.store.flush()
        waiting, self._unflushed = self._unflushed, []
        for sent, result in waiting:
            self.ledger.acked(sent, result)

    def dispatch(self) -> None:
        self.store.dispatch()

    def sync_positions(self) -> None:
        self.store.sync_positions()

    def clean(self) -> None:
        """All log files but the last are expired; now and then they go."""
        size = self.config.mapped_file_size_commit_log
        if self.store.max_physical_offset - self.store.min_physical_offset < 2 * size:
            return
        self.store.dispatch()
        self.ledger.removed_before = self.store.max_physical_offset // size * size
        self.clock.advance(80 * 3_600_000)
        self.store.clean()
        self.ledger.removed_before = self.store.min_physical_offset

    def reopen(self) -> None:
        self.store.close()
        waiting, self._unflushed = self._unflushed, []
        for sent, result in waiting:
            self.ledger.acked(sent, result)
        self.store = open_over(self.storage, self.config, self.clock)

    def kill(self) -> None:
        """The process dies, the machine stays: what was written is there, synced or not, but for write
        buffers.
        """
        self.store.abandon()
        self._unflushed.clear()
        self.store = open_over(self.storage, self.config, self.clock)


def recovered(image: MemoryStorage, config: StoreConfig, ledger: Ledger, *, clean_close: bool) -> None:
    """Open what a crash left; the promise holds, holds again after the next opening, and the store goes
    on.
    """
    clock = ManualClock(START + 3_600_000)
    store = open_over(image, config, clock)
    try:
        before = ledger.check(store, keys=config.message_index_enable)
    except AssertionError as error:
        error.add_note(f"the first recovery said: {store.report}")
        raise
    end = store.max_physical_offset
    if clean_close:
        store.close()
    else:
        store.abandon()
    again = open_over(image, config, clock)
    try:
        assert ledger.check(again, keys=config.message_index_enable) == before
        assert again.max_physical_offset == end
        assert again.report.clean == clean_close
        assert not again.report.faults and not again.report.cut_bytes, str(again.report)
        _goes_on(again, ledger.copy(), before, config)
    finally:
        again.abandon()


def _goes_on(store: Any, ledger: Ledger, held: Any, config: StoreConfig) -> None:
    for topic, queue_id in [("A", 0), ("B", 1)]:
        sent = ledger.tried(Sent(topic, queue_id, b"after the crash %d" % queue_id, f"after{queue_id}"))
        expected = store.max_offset(topic, queue_id)
        result = store.put(Message(topic, sent.body, keys=sent.key, queue_id=queue_id))
        assert result.ok and result.queue_offset == expected, result
        last = held.get((topic, queue_id))
        assert last is None or expected == last[-1][0] + 1, "the next offset leaves a hole"
        ledger.acked(sent, result)
    store.flush()
    store.dispatch()
    # What was lost before (never acked) may have left a hole.
    ledger.check(store, keys=config.message_index_enable, continuous=False)


def recovered_interrupted(image: MemoryStorage, config: StoreConfig, seed: int) -> Iterator[MemoryStorage]:
    """What further power cuts during the recovery of ``image`` may leave."""
    taken: list[MemoryStorage] = []
    rng = random.Random(seed)

    def take(operation: str, path: str) -> None:
        if rng.random() < 0.3:
            taken.extend(image.crash_states(2, seed=rng.randrange(1 << 30)))

    image.on_step = take
    store = open_over(image, config, ManualClock(START + 1_800_000))
    image.on_step = None
    store.abandon()
    rng.shuffle(taken)
    yield from taken[:3]
