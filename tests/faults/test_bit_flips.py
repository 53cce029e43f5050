"""S27: one bit turns, anywhere in a store. It never costs more than what it hit."""

from __future__ import annotations

import os
from functools import cache
from typing import Literal

import pytest

from crash.ledger import contents
from faults.place import ROOT, Place, body_of
from penstock import StoreConfig, open_store
from penstock.errors import StoreError
from penstock.files.memory import MemoryStorage
from penstock.store.verify import verify_store

MESSAGES = 12
QUEUES = 2
PADDING = 8

Ending = Literal["closed", "killed", "lagging"]
"""How the store was left; "lagging": killed before its last messages had units and index entries."""

FLIPPED = StoreConfig(
    mapped_file_size_commit_log=1536,
    mapped_file_size_consume_queue=20 * 5,
    max_hash_slot_num=10,
    max_index_num=24,
)


@cache
def sample(ending: Ending) -> tuple[MemoryStorage, dict[str, bytes], dict[int, int]]:
    """A small store: its files, and the physical offset of each message."""
    place = Place(config=FLIPPED)
    place.open()
    places = {}
    for number in range(MESSAGES):
        result = place.put(number, PADDING, queue_id=number % QUEUES)
        places[number] = result.physical_offset
        if number == MESSAGES // 2:
            place.store.dispatch()
            place.store.sync_positions()
    if ending != "lagging":
        place.store.dispatch()
    place.store.consumer_offsets.commit("group", "T", 0, 3)
    place.store.consumer_offsets.persist()
    if ending == "closed":
        place.store.close()
    else:
        place.kill()
    storage = place.storage.copy()
    return storage, dict(walk(storage, ROOT)), places


def walk(storage: MemoryStorage, folder: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in storage.listdir(folder):
        path = f"{folder}/{entry.name}"
        found += walk(storage, path) if entry.is_dir else [(path, storage.read_file(path))]
    return found


def used_length(path: str, data: bytes) -> int:
    """Bytes worth turning: of long tails of zeros only the beginning."""
    return min(len(data), len(data.rstrip(b"\0")) + 24)


def positions(ending: Ending, kind: str) -> list[tuple[str, int]]:
    _, files, _ = sample(ending)
    return [
        (path, at)
        for path, data in sorted(files.items())
        if kind_of(path) == kind
        for at in range(used_length(path, data))
    ]


def kind_of(path: str) -> str:
    parts = path.removeprefix(ROOT + "/").split("/")
    return parts[0] if len(parts) > 1 else "single files"


KINDS = ["commitlog", "consumequeue", "index", "config", "single files"]
CASES: list[tuple[str, Ending]] = [
    *((kind, ending) for kind in KINDS for ending in ("closed", "killed")),
    *((kind, "lagging") for kind in KINDS[:3]),  # the others are the same however far dispatch got
]


def number_in(body: bytes, place: int, places: dict[int, int]) -> int:
    """The number of the message whose record lies at a place, -1 when it is damaged or none of ours."""
    number = next((number for number, at in places.items() if at == place), -1)
    return number if body == body_of(number, PADDING) else -1


def numbers_of(store: object, places: dict[int, int]) -> dict[int, list[int]]:
    return {
        queue_id: [number_in(body, place, places) for _, place, body in messages]
        for (topic, queue_id), messages in contents(store).items()
        if topic == "T"
    }


def offset_in(path: str, at: int) -> int:
    """The place in the whole log or queue of a byte of one of its files."""
    return int(path.rsplit("/", 1)[1]) + at


def hit_message(path: str, at: int, places: dict[int, int]) -> int | None:
    """The message whose record or queue unit a byte belongs to, None for other files."""
    kind = kind_of(path)
    if kind not in ("commitlog", "consumequeue"):
        return None
    offset = offset_in(path, at)
    if kind == "consumequeue":
        return offset // 20 * QUEUES + int(path.split("/")[-2])
    return max((number for number, place in places.items() if place <= offset), default=None)


def check_flip(ending: Ending, path: str, at: int, bit: int) -> None:
    original, _, places = sample(ending)
    storage = original.copy()
    storage.flip_bit(path, at, bit)
    hit = hit_message(path, at, places)
    where = f"bit {bit} of byte {at} in {path}"
    place = Place(config=FLIPPED, storage=storage)
    try:
        store = place.open()
    except StoreError as error:
        # Refused, but then with the file's name, and nothing was touched: turn it back and all is well.
        assert error.file is not None and kind_of(path) in ("config",), f"{where}: {error}"
        return
    found = numbers_of(store, places)
    for queue_id in range(QUEUES):
        expected = [n for n in range(MESSAGES) if n % QUEUES == queue_id]
        there = found.get(queue_id, [])
        lost = set(expected) - set(there) - {hit}
        if lost:
            # A record whose queue id or offset was hit took the place of another, which is still in the log.
            (other,) = lost
            assert hit is not None and 12 <= offset_in(path, at) - places[hit] < 28, f"{where}: lost {lost}"
            assert store.lookup(places[other]).body == body_of(other, PADDING), f"{where}: lost {lost}"
        others = [n for n in there if n in expected and n != hit]
        assert others == [n for n in expected if n in there and n != hit], f"{where}: {there}"
    last = place.put(100, PADDING)
    store.dispatch()
    assert [m.body for m in store.query("T", "k100")] == [body_of(100, PADDING)], where
    # A damaged last record is cut off: then this one has its place.
    added = {n: p for n, p in places.items() if p != last.physical_offset} | {100: last.physical_offset}
    assert numbers_of(store, added)[0][-1] == 100, where
    store.close()
    again = open_store(ROOT, config=FLIPPED, storage=storage, clock=place.clock, background=False)
    assert numbers_of(again, added)[0][-1] == 100, where
    again.abandon()


STRIDE = int(os.environ.get("PENSTOCK_FLIP_STRIDE", "7"))


@pytest.mark.parametrize(("kind", "ending"), CASES)
def test_s27_flipped_bit_costs_no_more_than_what_it_hit(kind: str, ending: Ending) -> None:
    places = positions(ending, kind)
    assert places
    for number, (path, at) in enumerate(places[::STRIDE]):
        check_flip(ending, path, at, number % 8)


@pytest.mark.crash
@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize(("kind", "ending"), CASES)
def test_s27_every_flipped_bit_costs_no_more_than_what_it_hit(kind: str, ending: Ending, bit: int) -> None:
    places = positions(ending, kind)
    assert places
    for path, at in places:
        check_flip(ending, path, at, bit)


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "index"])
def test_s27_verify_locates_flipped_bits(kind: str) -> None:
    """Bits that some check covers: verify names the file, and the place where the format has one."""
    original, _, _ = sample("closed")
    checked = 0
    for path, at in positions("closed", kind)[:: STRIDE * 2]:
        storage = original.copy()
        storage.flip_bit(path, at, 3)
        report = verify_store(ROOT, config=FLIPPED, storage=storage)
        if report.healthy:
            continue
        checked += 1
        assert all(fault.file for fault in report.faults)
        assert report.fault_count <= 40, f"byte {at} of {path}: one bit, {report.fault_count} faults"
    assert checked > len(positions("closed", kind)[:: STRIDE * 2]) // 3
