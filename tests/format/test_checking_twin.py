"""Compiled and plain verification say the same of every run of records, whatever is damaged."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._native import chains as native_chains
from penstock._native import checkedqueue as native_queue
from penstock._native import checking as native_checking
from penstock._native import edges as native_edges
from penstock.format import chains, checkedqueue, checking, edges
from penstock.format.dispatch import dispatch_run
from penstock.format.indexfile import IndexEntry, encode_index_entry
from penstock.format.queueunit import parse_delay_levels
from penstock.format.record import encode_record
from penstock.message.properties import encode_properties

DELAYS = parse_delay_levels()
NOW = 1_700_000_000_000
BASE = 512
SPECIAL_TOPIC = b"special"
ascii_words = st.text("abkz019", min_size=1, max_size=6)

messages = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b", "SCHEDULE_TOPIC_XXXX", "special", "PENSTOCK"]),
        "queue_id": st.integers(0, 1),
        "sys_flag": st.sampled_from([0, 0, 0, 4, 8, 12]),
        "body": st.text("xyz", max_size=700).map(str.encode),
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "TAGS": ascii_words,
                "KEYS": st.lists(ascii_words, max_size=4).map(" ".join),
                "UNIQ_KEY": ascii_words,
                "DELAY": st.integers(0, 30).map(str),
                "INNER_MULTI_DISPATCH": ascii_words,
                "other": ascii_words,
            },
        ),
        "property_crc": st.booleans(),
        "later": st.integers(0, 4000),
    }
)


@dataclass
class Scene:
    """A piece of log with its queues' units and its index entries."""

    log: bytearray
    begins: list[int]
    units: dict[tuple[bytes, int], bytearray]
    entries: bytearray
    window: int

    def damage(self, target: int, place: int, mask: int) -> None:
        """Flip a bit; of every fourth in the fields before a body, where no CRC of a body covers it."""
        if target % 4 == 0 and self.begins:
            number, field = divmod(place, 60)
            self.log[self.begins[number % len(self.begins)] + field] ^= mask
            return
        parts = [self.log, self.entries, *self.units.values()]
        part = parts[target % len(parts)]
        if part:
            part[place % len(part)] ^= mask


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    log, begins, time = bytearray(), [], NOW
    counters: dict[tuple[str, int], int] = {}
    for given_message in draw(st.lists(messages, max_size=12)):
        message = dict(given_message)
        time += message.pop("later")
        key = message["topic"], message["queue_id"]
        offset = counters.get(key, 0)
        queued = message["sys_flag"] in (0, 8)
        counters[key] = offset + queued
        begins.append(len(log))
        log += encode_record(
            **{**message, "properties": encode_properties(message["properties"])},
            queue_offset=offset if queued else 0,
            physical_offset=BASE + len(log),
            store_timestamp=time,
            born_timestamp=time,
        )
    run = dispatch_run(bytes(log), BASE, delays=DELAYS)
    units: dict[tuple[bytes, int], bytearray] = {}
    for write in run.units:
        units.setdefault((write.topic.encode(), write.queue_id), bytearray()).extend(write.unit)
    entries = b"".join(
        encode_index_entry(IndexEntry(k.key_hash, k.physical_offset, (k.store_timestamp - NOW) // 1000, 0))
        for k in run.keys
    )
    scene = Scene(log, begins, units, bytearray(entries), draw(st.integers(1, 5)))
    for target, place, mask in draw(
        st.lists(
            st.tuples(st.integers(0, 20), st.integers(0, 1 << 16), st.sampled_from([1, 2, 4, 8, 16, 32, 64])),
            max_size=4,
        )
    ):
        scene.damage(target, place, mask)
    return scene


def judge(scene: Scene, module: Any, queue_class: Any, *, indexed: bool) -> list[Any]:
    """Everything a checker says of a scene, and where it leaves each queue."""
    checker = module.Checker(DELAYS, BASE)
    queues: list[Any] = []
    said: list[Any] = []
    pieces = [
        (bytes(scene.entries[at : at + 20 * scene.window]), 1 + at // 20)
        for at in range(0, len(scene.entries), 20 * scene.window)
    ]

    def next_piece() -> None:
        if pieces:
            checker.set_entries(*pieces.pop(0), NOW)
        else:
            checker.set_entries(None, 0, 0)

    if indexed:
        next_piece()
    start = 0
    checker.begin()
    while True:
        code = checker.run(bytes(scene.log[start:]), BASE + start)
        said.append((code, start + checker.position))
        if code == module.DONE:
            break
        if code == module.STOP:
            said.append(checker.stop)
            later = [begin for begin in scene.begins if begin > start + checker.position]
            if not later:
                break
            start = later[0]
            checker.begin()
        elif code == module.NEED_QUEUE:
            at, length, queue_id, _ = checker.record_queue
            at += start + checker.position
            encoded = bytes(scene.log[at : at + length])
            topic = encoded.decode("ascii", "replace")
            queues.append(queue_class(topic, queue_id, encoded, encoded == SPECIAL_TOPIC))
            checker.add_queue(queues[-1])
        elif code == module.NEED_UNITS:
            queue = checker.needed_queue
            units = scene.units.get((queue.topic.encode(), queue.queue_id), b"")
            first = queue.next * 20
            queue.set_units(bytes(units[first : first + 20 * scene.window]), queue.next)
        elif code == module.NEED_ENTRIES:
            next_piece()
        elif code in (module.ENTRY_DIFFERS, module.ENTRY_LOST):
            said.append((checker.entry, checker.rest_of_entries()))
            checker.skip_entry()
        elif code == module.UNIT_DIFFERS:
            checker.queue_part_done(checker.record_size % 2 == 0)
        elif code == module.OUT_OF_ORDER and checker.record_queue[3] > checker.needed_queue.next:
            checker.needed_queue.next = checker.record_queue[3]
        else:
            said.append((checker.record_size, checker.record_queue))
            checker.skip_unit()
    said.append(
        [
            *(checker.records, checker.fillers, checker.last_position, checker.last_store_timestamp),
            *(checker.entries_checked, checker.keys_missing, checker.tags_missing),
            *(checker.first_key_missing, checker.last_key_missing),
        ]
    )
    said += [(q.topic, q.first, q.next, q.checked, q.missing, q.first_missing, q.ended) for q in queues]
    return said


@settings(max_examples=300)
@given(scenes(), st.booleans())
def test_checkers_say_the_same(scene: Scene, indexed: bool) -> None:
    plain = judge(scene, checking, checkedqueue.CheckedQueue, indexed=indexed)
    assert judge(scene, native_checking, native_queue.CheckedQueue, indexed=indexed) == plain


def test_codes_are_the_same() -> None:
    names = [name for name in vars(checking) if name.isupper() and hasattr(native_checking, name)]
    assert len(names) == 11
    assert all(getattr(checking, name) == getattr(native_checking, name) for name in names)


small = st.integers(-2, 6) | st.sampled_from([0x7FFFFFFF, -(1 << 31)])
units = st.lists(st.tuples(small, small, small).map(lambda unit: struct.pack(">qiq", *unit)), max_size=8)


@given(units.map(b"".join), st.integers(-1, 9), st.integers(0, 9))
def test_edges_of_a_queue_are_judged_the_same(data: bytes, bound: int, start: int) -> None:
    assert native_edges.bad_head_unit(data, bound) == edges.bad_head_unit(data, bound)
    assert native_edges.bad_tail_unit(data, bound, start) == edges.bad_tail_unit(data, bound, start)


entries = st.lists(
    st.tuples(small, small, small, small).map(lambda entry: encode_index_entry(IndexEntry(*entry))),
    max_size=130,
)


@given(entries.map(b"".join), st.lists(small, min_size=1, max_size=5), st.integers(1, 50))
def test_chains_are_followed_the_same(data: bytes, heads: list[int], first: int) -> None:
    table = struct.pack(f">{len(heads)}i", *heads)
    one, other = bytearray(table), bytearray(table)
    assert native_chains.check_chain(one, data, first, len(heads)) == chains.check_chain(
        other, data, first, len(heads)
    )
    assert one == other
    assert native_chains.differing_slots(table, one) == chains.differing_slots(table, one)
    assert native_chains.differing_slots(table, one, 1) == chains.differing_slots(table, one, 1)
