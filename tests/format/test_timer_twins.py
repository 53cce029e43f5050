"""Timer messages into the wheel and out of it: compiled and plain agree, whatever the messages hold."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from format.strategies import hosts, property_maps, topics
from penstock._native import timercopy, timerjoin
from penstock.format import timercopy as plain_copy
from penstock.format import timerjoin as plain_join
from penstock.format.record import decode_record, encode_record
from penstock.format.timerunit import (
    TIMER_UNIT_SIZE,
    TimerUnit,
    WheelSlot,
    encode_timer_unit,
    encode_wheel_slot,
)
from penstock.message.properties import encode_properties

HELD = "rmq_sys_wheel_timer"
NOW = 1_700_000_000_000
SLOTS = 512
odd = st.sampled_from(["", "+5", "-5", "x", "٣", "1" * 19, "9" * 40])
times = st.one_of(st.integers(NOW - 5000, NOW + 200_000).map(str), odd)


@st.composite
def timed(draw: st.DrawFn) -> bytes:
    """A message in the timer topic, with most of what belongs there, or what does not."""
    properties = draw(property_maps)
    named = {
        "TIMER_OUT_MS": times,
        "REAL_TOPIC": topics,
        "REAL_QID": st.one_of(st.integers(0, 9).map(str), odd),
        "UNIQ_KEY": st.sampled_from(["a", "b"]),
        "TIMER_ENQUEUE_MS": st.just("1"),
        "TIMER_ROLL_TIMES": st.one_of(st.integers(0, 99).map(str), odd),
        "TIMER_DEL_UNIQKEY": st.just("a"),
        "__CRC32#": st.just("0123456789"),
    }
    usual = draw(st.booleans())
    for name, values in named.items():
        wanted = (
            name in ("TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY") if usual else draw(st.booleans())
        )
        if wanted:
            properties[name] = draw(values)
    if usual:
        properties.pop("INNER_NUM", None)
    text = encode_properties(properties)
    if draw(st.integers(0, 9)) == 0:  # bytes that are no text, names that come twice
        text += draw(
            st.sampled_from([b"x\x01\xff\xfe\x02", b"REAL_QID\x012\x02", b"UNIQ_KEY\x01b\x02k\x01v", b"\x02"])
        )
    return encode_record(
        draw(st.sampled_from([HELD, HELD, HELD, HELD, "other"])),
        draw(st.binary(max_size=200)),
        text,
        flag=3,
        sys_flag=draw(st.sampled_from([0, 0, 1, 0x8, 0x80])),
        born_timestamp=draw(st.integers(0, NOW)),
        born_host=draw(hosts),
        store_host=draw(hosts),
        reconsume_times=2,
        prepared_transaction_offset=7,
        queue_offset=draw(st.integers(0, 1000)),
        physical_offset=draw(st.integers(0, 1 << 40)),
        store_timestamp=NOW,
    )


@st.composite
def wheels(draw: st.DrawFn) -> dict[int, bytearray]:
    """Pages with some slots of these ticks, of another round, or empty ones."""
    pages: dict[int, bytearray] = {}
    for tick in draw(st.lists(st.integers(NOW // 1000 - 3, NOW // 1000 + 200), max_size=8)):
        time = draw(st.sampled_from([tick, tick, tick - SLOTS]))
        first, last = draw(st.sampled_from([(0, 52), (-1, 52), (-1, -1)]))
        slot = WheelSlot(time, first, last, draw(st.integers(-1, 5)), draw(st.integers(0, 1)))
        plain_join.set_slots(pages, SLOTS, encode_wheel_slot(slot))
    return pages


@given(
    records=st.lists(timed(), max_size=12),
    pages=wheels(),
    begin=st.integers(0, 2),
    room=st.integers(0, 14),
    window=st.sampled_from([2000, 7000, 90_000, 300_000]),
    precision=st.sampled_from([1000, 200]),
    lag=st.integers(-3000, 3000),
    out=st.sampled_from([-1, -1, NOW + 3000]),
)
def test_compiled_units_and_slots_are_the_plain_ones(
    records: list[bytes],
    pages: dict[int, bytearray],
    begin: int,
    room: int,
    window: int,
    precision: int,
    lag: int,
    out: int,
) -> None:
    rules = (NOW + lag, NOW + max(lag, 0), window, precision, NOW - 2000)
    arguments: tuple[Any, ...] = (records, begin, pages, SLOTS, 520, room, rules, out)
    made = timerjoin.join_units(*arguments)
    assert made == plain_join.join_units(*arguments)
    other = {number: bytearray(page) for number, page in pages.items()}
    assert timerjoin.set_slots(pages, SLOTS, made[2]) == plain_join.set_slots(other, SLOTS, made[2])
    assert pages == other
    before = NOW + 60_000
    assert timerjoin.count_late(records, begin, before) == plain_join.count_late(records, begin, before)


@given(
    units=st.lists(
        st.builds(
            TimerUnit,
            previous=st.one_of(st.just(-1), st.integers(-2, 12).map(lambda n: 520 + n * TIMER_UNIT_SIZE)),
            magic=st.sampled_from([1, 1, 3, 5, 7, 16]),
            write_time=st.sampled_from([NOW, NOW, NOW - 1000, -NOW]),
            delay=st.sampled_from([0, 0, 999, 1000]),
            physical_offset=st.just(0),
            size=st.just(100),
            topic_hash=st.just(0),
            unit_size=st.sampled_from([TIMER_UNIT_SIZE] * 9 + [0]),
        ),
        max_size=12,
    ),
    start=st.integers(-1, 12),
    cut=st.integers(0, 60),
    sound=st.booleans(),
)
@example(units=[], start=0, cut=0, sound=True)
def test_compiled_chains_are_the_plain_ones(
    units: list[TimerUnit], start: int, cut: int, sound: bool
) -> None:
    if sound:
        units = [
            unit._replace(previous=520 + (n - 1) * TIMER_UNIT_SIZE, write_time=NOW, delay=0)
            for n, unit in enumerate(units)
        ]
    data = b"".join(map(encode_timer_unit, units))
    position = 520 + start * TIMER_UNIT_SIZE
    arguments = (data, 520, 520 + len(data) - cut, position, NOW // 1000, 1000)
    assert timerjoin.follow_chain(*arguments) == plain_join.follow_chain(*arguments)


@given(
    records=st.lists(st.one_of(timed(), timed(), st.none()), max_size=8),
    roll=st.booleans(),
    deleted=st.sampled_from([frozenset(), frozenset({b"a"}), frozenset({b"t+b"})]),
    most=st.sampled_from([500, 1 << 20]),
    body=st.sampled_from([100, 1 << 22]),
)
def test_compiled_copies_of_due_messages_are_the_plain_ones(
    records: list[bytes | None], roll: bool, deleted: frozenset[bytes], most: int, body: int
) -> None:
    moments = array("q", [NOW + number if number != 5 else (1 << 63) - 1 for number in range(len(records))])
    arguments = (records, moments, HELD.encode(), NOW + 9, roll, deleted, body, body + 500, most)
    made = timercopy.copy_due(*arguments)
    assert made == plain_copy.copy_due(*arguments)
    for begin, slot in zip(made[1], made[2], strict=True):
        copy = decode_record(made[0], begin)
        assert (copy.topic, copy.queue_id) == ((HELD, 0) if roll else made[3][slot])


@pytest.mark.parametrize("garbage", [b"", b"x" * 7, bytes(100)])
def test_bytes_that_are_no_record_end_the_run(garbage: bytes) -> None:
    rules = (NOW, NOW, 90_000, 1000, NOW)
    assert timerjoin.join_units([garbage], 0, {}, SLOTS, 0, 9, rules) == (0, b"", b"", {})
    assert timerjoin.count_late([garbage], 0, NOW) == 0
    made = timercopy.copy_due([garbage], array("q", [1]), b"t", NOW, False, frozenset(), 1, 1, 1)
    assert made == (bytearray(), array("q"), array("i"), [])
