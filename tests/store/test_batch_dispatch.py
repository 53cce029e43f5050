"""Batches are dispatched from what the append knew of them, as if they were read from the log."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_files import contents

from penstock import Message, StoreConfig
from penstock._native.prepared import Prepared
from penstock.clock import ManualClock
from penstock.format.batch import BatchBlock, encode_client_batch
from penstock.message.properties import encode_properties
from penstock.store import dispatcher
from penstock.store.messagestore import MessageStore
from penstock.store.opening import open_writable

NOW = 1_700_000_000_000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=16 << 10, max_hash_slot_num=100, max_index_num=100, max_message_size=8 << 10
)
ONE = Message("topic", b"", queue_id=1, born_timestamp=NOW, born_host="1.2.3.4:5")


def opened(path: Path, config: StoreConfig = CONFIG) -> MessageStore:
    return open_writable(path, config=config, clock=ManualClock(NOW), background=False)


def batch(number: int, keys: int = 1, count: int = 7) -> list[Message]:
    return [
        msgspec.structs.replace(
            ONE,
            body=b"%d" % n * 40,
            queue_id=number % 2,
            raw_properties=encode_properties(
                {
                    "KEYS": " ".join(f"k{n}-{key}" for key in range(keys)),
                    "TAGS": f"tag{n % 3}",
                    "UNIQ_KEY": f"{number:016X}{n:016X}",
                }
            )
            if n % 5
            else b"",
        )
        for n in range(count)
    ]


def append(store: MessageStore, messages: list[Message], *, read: bool) -> None:
    """Store a batch from its bytes; with ``read`` as messages, of which the dispatcher knows nothing."""
    if read:
        assert store.append_many(messages).ok
        return
    blocks = [BatchBlock(bytes(each.body), each.raw_properties or b"", each.flag) for each in messages]
    assert store.append_batch(messages[0], encode_client_batch(blocks)).ok


def act(store: MessageStore, plan: str, *, read: bool) -> None:
    for number, what in enumerate(plan):
        match what:
            case "b":
                append(store, batch(number), read=read)
            case "k":  # more keys than may be prepared
                append(store, batch(number, keys=60), read=read)
            case "i":  # only Python can put it into its queue
                odd = [msgspec.structs.replace(each, sys_flag=0x4) for each in batch(number)]
                append(store, odd, read=read)
            case "p":
                store.put(msgspec.structs.replace(ONE, body=b"single", keys="s", unique_key="S"))
            case "f":
                store.flush()
            case "d":
                store.dispatch()


@pytest.mark.parametrize("most", [5, 16_384])
@pytest.mark.parametrize("flush", ["async", "sync"])
@given(plan=st.text("bbbbpkifd", max_size=40))
def test_batches_become_the_units_and_entries_that_the_dispatcher_reads(
    tmp_path_factory: pytest.TempPathFactory, most: int, flush: str, plan: str
) -> None:
    root = tmp_path_factory.mktemp("stores")
    config = CONFIG.replace(flush_disk_type=flush)
    for name in ("read", "known"):
        with opened(root / name, config) as store:
            store._dispatcher._ready = Prepared(most)
            act(store, plan, read=name == "read")
            store.flush()
            store.dispatch()
            assert not store.undispatched
    assert contents(root / "known") == contents(root / "read")


def test_nothing_of_a_batch_is_read_again_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, CONFIG.replace(flush_disk_type="async")) as store:
        act(store, "bbd", read=False)  # makes the two queues
        act(store, "bb", read=False)
        assert store._dispatcher._ready.left == 14

        def read(*_: object) -> None:
            raise AssertionError("the log is read")

        with monkeypatch.context() as patched:
            patched.setattr(store._log, "mapping_at", read)
            store.dispatch()
        assert not store.undispatched
        assert len(store._dispatcher._ready) == 0
        assert [each.body for each in store.get("topic", 1, 7)] == [each.body for each in batch(1)]


def test_a_dispatcher_with_a_thread_of_its_own_prepares_nothing(tmp_path: Path) -> None:
    with open_writable(tmp_path, config=CONFIG) as store:
        act(store, "bb", read=False)
        assert len(store._dispatcher._ready) == 0
        store.dispatch_by_hand()
        act(store, "b", read=False)
        assert len(store._dispatcher._ready) == 7


def test_batches_of_a_queue_that_was_made_anew_go_to_the_new_one(tmp_path: Path) -> None:
    with opened(tmp_path, CONFIG.replace(flush_disk_type="async")) as store:
        act(store, "bd", read=False)
        act(store, "b", read=False)
        ready = store._dispatcher._ready
        (known,) = ready.queues
        store._dispatcher.native.remove_queue(known)
        assert not store._dispatcher.native.follows(known)
        store.dispatch()
        assert len(ready) == 0
        assert [each.body for each in store.get("topic", 0, 7)] == [each.body for each in batch(0)]


def test_what_is_prepared_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path, CONFIG.replace(flush_disk_type="async")) as store:
        store._dispatcher._ready = Prepared(10)
        act(store, "bbbb", read=False)
        assert len(store._dispatcher._ready) == 10
        act(store, "db", read=False)
        assert len(store._dispatcher._ready) == 7
    assert dispatcher.MOST_READY <= 1 << 16
