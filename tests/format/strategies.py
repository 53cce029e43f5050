"""Hypothesis strategies for records.

Also of use where the compiled functions are held equal to the plain ones.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.format.batch import BatchBlock
from penstock.format.record import encode_record
from penstock.message.properties import encode_properties

ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
offsets = st.integers(0, 1 << 40)
ports = st.integers(0, 65535)
hosts = st.one_of(
    st.builds("{}:{}".format, st.ip_addresses(v=4), ports),
    st.builds("[{}]:{}".format, st.ip_addresses(v=6), ports),
)
words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02"), min_size=1, max_size=20
)
topics = st.one_of(
    words,
    st.text("abcXYZ%-_|09", min_size=1, max_size=127),
    st.text("g", min_size=120, max_size=248).map(lambda name: "%RETRY%" + name),
)
names = st.one_of(
    words, st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "INNER_NUM", "INNER_BASE"])
)
property_maps = st.dictionaries(names, words, max_size=6)
bodies = st.one_of(st.binary(max_size=64), st.binary(min_size=600, max_size=1400), st.just(bytes(700)))
sys_flags = st.integers(0, 0x7FF)


@st.composite
def record_arguments(
    draw: st.DrawFn, *, properties: st.SearchStrategy[bytes] | None = None
) -> dict[str, Any]:
    """Keyword arguments of ``encode_record``."""
    strategy = property_maps.map(encode_properties) if properties is None else properties
    return {
        "topic": draw(topics),
        "body": draw(bodies),
        "properties": draw(strategy),
        "queue_id": draw(ints),
        "flag": draw(ints),
        "sys_flag": draw(sys_flags),
        "born_timestamp": draw(longs),
        "born_host": draw(hosts),
        "store_host": draw(hosts),
        "reconsume_times": draw(ints),
        "prepared_transaction_offset": draw(longs),
        "queue_offset": draw(offsets),
        "physical_offset": draw(offsets),
        "store_timestamp": draw(longs),
        "property_crc": draw(st.booleans()),
    }


@st.composite
def logs(draw: st.DrawFn, *, max_records: int = 6) -> tuple[int, list[bytes]]:
    """A base offset and records that lie end to end from there."""
    base = draw(st.sampled_from([0, 7, 512, 1 << 30, (1 << 40) + 300]))
    records: list[bytes] = []
    for arguments in draw(st.lists(record_arguments(), max_size=max_records)):
        arguments["physical_offset"] = base + sum(map(len, records))
        records.append(encode_record(**arguments))
    return base, records


batch_blocks = st.lists(
    st.builds(BatchBlock, st.binary(max_size=40), property_maps.map(encode_properties), ints), max_size=5
)
