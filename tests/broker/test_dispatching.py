"""What is read is dispatched first, and nothing else has to be."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock import Message
from penstock.broker.dispatching import Dispatching
from penstock.store.opening import open_writable


def test_reader_of_some_topics_dispatches_only_when_they_were_written_to(tmp_path: Path) -> None:
    async def scene() -> None:
        store = open_writable(tmp_path, flush="async", background=False)
        dispatching = Dispatching(store, on_arrival=lambda _: None)
        store.put(Message("T", b"one"))
        dispatching.appended(("T", 0))
        dispatching.catch_up(("U", "%RETRY%G_U"))
        assert (store.max_offset("T", 0), store.undispatched > 0) == (0, True)
        dispatching.catch_up(("U", "T"))
        assert (store.max_offset("T", 0), store.undispatched) == (1, 0)
        store.put(Message("T", b"two"))
        dispatching.appended(("T", 0))
        dispatching.catch_up()
        assert store.max_offset("T", 0) == 2
        dispatching.close()
        store.close()

    asyncio.run(scene())


def test_reader_of_another_topic_dispatches_what_an_earlier_step_could_not(tmp_path: Path) -> None:
    async def scene() -> None:
        store = open_writable(tmp_path, flush="sync", background=False)
        dispatching = Dispatching(store, on_arrival=lambda _: None)
        store.put(Message("T", b"one", wait=False))
        dispatching.appended(("T", 0))
        dispatching.advance()  # not on disk, so not readable: the step leaves it to a later one
        assert store.max_offset("T", 0) == 0
        store.flush()
        dispatching.catch_up(("U",))
        assert store.max_offset("T", 0) == 1
        dispatching.close()
        store.close()

    asyncio.run(scene())
