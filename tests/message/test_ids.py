"""Ids and hosts."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._native.batchbody import BatchKeys
from penstock.message import decode_message_id, unique_id
from penstock.message.host import format_host, pack_host, parse_host, unpack_host
from penstock.message.ids import UniqueIdGenerator, message_id_of

hosts = st.one_of(
    st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65535)),
    st.builds("[{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 65535)),
)


@given(hosts, st.integers(0, (1 << 63) - 1))
def test_an_offset_id_leads_back_to_its_record(host: str, offset: int) -> None:
    message_id = message_id_of(host, offset)
    assert len(message_id) == (56 if "[" in host else 32)
    found, found_offset = decode_message_id(message_id.lower())
    assert (parse_host(found), found_offset) == (parse_host(host), offset)


@given(hosts)
def test_hosts_round_trip(host: str) -> None:
    address, port = parse_host(host)
    assert parse_host(format_host(address, port)) == (address, port)
    assert parse_host(unpack_host(pack_host(host))) == (address, port)


@pytest.mark.parametrize(
    "text", ["", "1.2.3.4", "localhost:1", "::1:5", "[1.2.3.4]:5", "1.2.3.4:x", "[::1]", "1.2.3.4:²"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        parse_host(text)


@pytest.mark.parametrize("text", ["", "00", "G" * 32, "0A" * 15, "0A" * 17, "0A " * 10 + "0A"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        decode_message_id(text)


def test_a_unique_id_tells_address_process_time_and_number() -> None:
    start_of_month = int(datetime(2026, 3, 1).timestamp() * 1000)
    make = UniqueIdGenerator(
        bytes([10, 0, 0, 2]), pid=0x12345, salt=0xAABBCCDD, now_ms=lambda: start_of_month + 5000
    )
    assert make() == "0A000002" + "2345" + "AABBCCDD" + f"{5000:08X}" + "0000"
    assert make().endswith("0001")


def test_a_unique_id_starts_over_with_the_month() -> None:
    december = int(datetime(2026, 12, 31, 23, 59, 59).timestamp() * 1000)
    january = int(datetime(2027, 1, 1).timestamp() * 1000)
    clock = [december]
    make = UniqueIdGenerator(bytes(4), pid=1, salt=1, now_ms=lambda: clock[0])
    assert int(make()[-12:-4], 16) == december - int(datetime(2026, 12, 1).timestamp() * 1000)
    clock[0] = january + 7
    assert int(make()[-12:-4], 16) == 7
    clock[0] = january - 100  # the clock was set back
    assert int(make()[-12:-4], 16) == 0


def test_an_ipv6_unique_id_has_56_characters() -> None:
    assert len(UniqueIdGenerator(bytes(16))()) == 56


def test_unique_ids_differ() -> None:
    ids = {unique_id() for _ in range(5000)}
    assert len(ids) == 5000
    assert all(len(text) == 32 and text == text.upper() for text in ids)


@given(st.lists(st.integers(0, 600), max_size=4), st.integers(0, 1 << 17), st.sampled_from([4, 16]))
def test_many_unique_ids_are_those_that_as_many_calls_give(
    counts: list[int], before: int, address: int
) -> None:
    def generator() -> UniqueIdGenerator:
        made = UniqueIdGenerator(bytes(address), pid=1, salt=1, now_ms=lambda: 5000)
        made._counter = itertools.count(before)
        return made

    one, many, compiled = generator(), generator(), generator()
    for count in filter(None, counts):
        expected = [one() for _ in range(count)]
        assert many.many(count) == expected
        assert list(BatchKeys(*compiled.reserve(count), count)) == expected
    assert many() == compiled() == one()


def test_threads_get_different_ids() -> None:
    make = UniqueIdGenerator(bytes(4), now_ms=lambda: 5000)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda number: make.many(50) if number % 2 else [make()], range(400)))
    ids = [each for some in taken for each in some]
    assert len(set(ids)) == len(ids) == 200 * 51
    assert all(int(some[-1][-4:], 16) - int(some[0][-4:], 16) == len(some) - 1 for some in taken)


@pytest.mark.parametrize(("begin", "count"), [("é", 1), ("A", -1), ("A\x01", 1), ("A" * 61, 1)])
def test_what_is_no_run_of_ids_is_refused(begin: str, count: int) -> None:
    with pytest.raises(ValueError):
        BatchKeys(begin, 0, count)
