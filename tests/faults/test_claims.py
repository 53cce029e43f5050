"""S3, S27: two records claim one place in a queue. One is damaged, or one is left over from an older log.

No CRC covers topic, queue id and queue offset, and no byte tells the two cases apart but the time of storing:
what a log that was cut and written again left behind is older than what took its place.
"""

from __future__ import annotations

import struct

import pytest

from faults.place import Place, body_of

QUEUE_ID, QUEUE_OFFSET, STORE_TIMESTAMP, TOPIC = 12, 20, 56, -1
LAST = 11


def killed_before_dispatch() -> tuple[Place, list[int]]:
    """Twelve messages, two topics one bit apart with two queues each; nothing of them was dispatched."""
    place = Place()
    place.open()
    places = [
        place.put(n, topic="T-0" if n % 4 < 2 else "T-1", queue_id=n % 2).physical_offset
        for n in range(LAST + 1)
    ]
    place.kill()
    return place, places


def flip(place: Place, offset: int, bit: int) -> None:
    path, at = place.log_file(offset)
    place.storage.flip_bit(path, at, bit)


def forget_position(place: Place) -> None:
    """What is known of the store is what RocketMQ leaves: it may hold leftovers."""
    place.storage.unlink(place.path("penstock.position"))


def topic_at(place: Place, offset: int) -> int:
    """Where the topic's last byte is in the record at an offset."""
    path, at = place.log_file(offset)
    return place.storage.pread(path, at, 400).index(b"\x03T-") + 3


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "foreign"])
@pytest.mark.parametrize(
    ("victim", "at", "bit"),
    [(10, QUEUE_ID + 3, 0), (7, QUEUE_OFFSET + 7, 0), (7, QUEUE_OFFSET + 7, 1), (9, TOPIC, 0)],
    ids=["queue id", "next queue offset", "later queue offset", "topic"],
)
def test_s27_last_record_is_kept_when_a_damaged_one_before_it_claims_its_place(
    victim: int, at: int, bit: int, ours: bool
) -> None:
    place, places = killed_before_dispatch()
    if not ours:
        forget_position(place)
    flip(place, places[victim] + (topic_at(place, places[victim]) if at == TOPIC else at), bit)
    store = place.open()
    for number, offset in enumerate(places):
        assert store.lookup(offset).body == body_of(number)
    added = place.put(100, topic="T-1", queue_id=1)
    assert added.physical_offset > places[LAST]
    store.close()
    store = place.open()
    assert store.report.clean and not store.report.faults and not store.report.cut_bytes
    assert store.lookup(added.physical_offset).body == body_of(100)


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "foreign"])
@pytest.mark.parametrize("dispatched", [True, False])
def test_s03_leftover_is_not_resurrected_although_one_bit_would_explain_it(
    ours: bool, dispatched: bool
) -> None:
    """The log was cut before its last two records, and another was stored in the first one's place."""
    place, places = killed_before_dispatch()
    path, at = place.log_file(places[LAST])
    leftover = place.storage.pread(path, at, 400).rstrip(b"\0")
    place.storage.overwrite(*place.log_file(places[LAST - 1]), bytes(400))
    place.open()
    taken = place.put(LAST, topic="T-1", queue_id=1)
    assert (taken.physical_offset, taken.queue_offset) == (places[LAST - 1], 2)
    if dispatched:
        place.store.dispatch()
    place.kill()
    end = taken.physical_offset + taken.size
    assert end == places[LAST]
    place.overwrite_log(end, leftover)
    if not ours:
        forget_position(place)
    store = place.open()
    assert store.report.end_offset == end and store.report.cut_bytes
    assert store.lookup(end) is None
    assert place.numbers("T-1", 1) == [3, 7, LAST]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "foreign"])
def test_s03_younger_record_that_no_bit_explains_is_a_leftover(ours: bool) -> None:
    """A clock that was put back alone brings no leftover to life."""
    place = Place()
    place.open()
    results = [place.put(number) for number in range(12)]
    place.kill()
    end = results[11].physical_offset + results[11].size
    path, at = place.log_file(results[7].physical_offset)
    leftover = bytearray(place.storage.pread(path, at, results[7].size))
    struct.pack_into(">q", leftover, 28, end)
    struct.pack_into(">q", leftover, STORE_TIMESTAMP, place.clock.now_ms() + 60_000)
    place.overwrite_log(end, bytes(leftover))
    if not ours:
        forget_position(place)
    store = place.open()
    assert store.report.end_offset == end and store.report.cut_bytes
    assert place.numbers() == list(range(12))
