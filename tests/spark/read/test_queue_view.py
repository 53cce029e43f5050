"""Which messages the options choose, in the view of the queues and in that of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from golden_store import unpack
from penstock import open_store
from penstock._native.record import walk
from penstock._native.rows import Decoder
from penstock._native.selection import Selection
from penstock.errors import DataLost, NotAStore, UsageError
from penstock.spark.places import open_places
from penstock.spark.planning import plan_queues
from penstock.store.readonly import ReadOnlyStore
from spark.read.rows import dumped, planned, rows
from spark.read.stores import START, STEP, fill, message


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["properties"]["number"]) for row in found)


def test_every_message_is_one_row_in_the_order_of_the_log(store: Path) -> None:
    found = rows(store)
    assert [int(row["properties"]["number"]) for row in found] == list(range(600))
    assert found == dumped(store)


@pytest.mark.parametrize("view", ["queue", "commitlog"])
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subscribe": "orders"}, lambda n: n % 3 == 0),
        ({"subscribe": "orders, audit"}, lambda n: n % 3 in (0, 2)),
        ({"subscribePattern": "(orders|pay.*)"}, lambda n: n % 3 in (0, 1)),
        (
            {"assign": '{"orders":[1],"audit":[0,1]}'},
            lambda n: n % 3 == 2 or (n % 3 == 0 and n // 3 % 2 == 1),
        ),
        ({"tags": "red"}, lambda n: n // 3 % 3 == 0),
        ({"tags": "red || green"}, lambda n: n // 3 % 3 < 2),
        ({"tags": "*"}, lambda n: True),
        ({"keys": "k17"}, lambda n: n == 17),
        ({"keys": "ten4,k8,nobody"}, lambda n: n % 10 == 4 or n == 8),
        ({"keys": '["ten4"]', "subscribe": "orders"}, lambda n: n % 10 == 4 and n % 3 == 0),
        ({"keys": "ten4", "tags": "green"}, lambda n: n % 10 == 4 and n // 3 % 3 == 1),
        ({"startingTimestamp": START + 100 * STEP}, lambda n: n >= 100),
        ({"endingTimestamp": START + 100 * STEP}, lambda n: n < 100),
        (
            {"startingTimestamp": START + 100 * STEP - 1, "endingTimestamp": "2023-11-14T22:16:40Z"},
            lambda n: 100 <= n < 200,
        ),
        (
            {
                "subscribe": "orders",
                "startingOffsetsByTimestamp": json.dumps({"orders": {"0": START + 300 * STEP}}),
            },
            lambda n: n % 3 == 0 and (n >= 300 or n // 3 % 2 == 1),
        ),
        (
            {
                "subscribe": "orders",
                "endingOffsetsByTimestamp": json.dumps({"orders": {"1": START + 300 * STEP}}),
            },
            lambda n: n % 3 == 0 and (n < 300 or n // 3 % 2 == 0),
        ),
        (
            {
                "subscribe": "audit",
                "startingOffsets": '{"audit":{"0":10}}',
                "endingOffsets": '{"audit":{"0":12,"1":1}}',
            },
            lambda n: (
                n % 3 == 2 and ((n // 3 % 2 == 0 and 10 <= n // 6 < 12) or (n // 3 % 2 == 1 and n // 6 < 1))
            ),
        ),
        ({"startingOffsets": "latest"}, lambda n: False),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, lambda n: True),
        (
            {"startingOffsets": '{"orders":{"0":-1,"1":-2}}', "subscribe": "orders"},
            lambda n: n % 3 == 0 and n // 3 % 2 == 1,
        ),
    ],
)
def test_options_choose(store: Path, view: str, options: dict[str, Any], wanted: Any) -> None:
    expected = [number for number in range(600) if wanted(number)]
    assert numbers(rows(store, view=view, **options)) == expected
    assert numbers(rows(store, view=view, splitBytes="10k", **options)) == expected


def test_a_group_is_continued_where_it_stands(tmp_path: Path) -> None:
    fill(tmp_path, 60)
    with open_store(tmp_path) as opened:
        opened.consumer_offsets.commit("billing", "orders", 0, 4)
        opened.consumer_offsets.persist()
    found = rows(tmp_path, subscribe="orders", startingGroup="billing")
    assert numbers(found) == [n for n in range(60) if n % 3 == 0 and (n // 3 % 2 == 1 or n // 6 >= 4)]
    with pytest.raises(UsageError, match=r"'nobody'.*billing"):
        rows(tmp_path, subscribe="orders", startingGroup="nobody")


def test_times_without_messages_are_an_error_only_when_asked_for(store: Path) -> None:
    late = START + 10_000 * STEP
    assert rows(store, startingTimestamp=late) == []
    with pytest.raises(UsageError, match="no message stored at"):
        rows(store, startingTimestamp=late, startingOffsetsByTimestampStrategy="error")


def test_reading_by_units_gives_the_same_rows(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows(store, subscribe="orders", tags="red || green")
    monkeypatch.setattr("penstock.spark.planning.SEEK_COST", -(1 << 20))
    for split in ("128m", "300"):
        options = {"subscribe": "orders", "tags": "red || green", "splitBytes": split}
        assert all(part.log is None and part.ranges for part in planned(store, **options)[1])
        found = rows(store, **options)
        assert sorted(found, key=lambda row: row["physicalOffset"]) == expected


def test_few_messages_of_a_long_log_are_read_by_their_units(tmp_path: Path) -> None:
    with open_store(tmp_path, flush="async") as opened:
        for number in range(3000):
            opened.put(message(3 * number) if number % 1000 else message(1))
        opened.flush()
    _, splits = planned(tmp_path, subscribe="payments")
    assert [(split.log, len(split.ranges)) for split in splits] == [(None, 1)]
    assert [row["queueOffset"] for row in rows(tmp_path, subscribe="payments")] == [0, 1, 2]


def test_keys_are_found_through_the_index(store: Path, tmp_path: Path) -> None:
    _, splits = planned(store, keys="k17")
    assert sum(len(split.offsets) for split in splits) == 1
    scanned = sum(split.log.size for split in splits if split.log is not None)
    assert scanned < 2000  # a record before the first entry, and the last one of each file of the index
    for key in ("k0", "k599", "ten9", message(3).unique_key or "k3"):
        with ReadOnlyStore(store) as opened:
            expected = {
                m.physical_offset for topic in opened.topics() for m in opened.query(topic, key, max=1000)
            }
        assert {row["physicalOffset"] for row in rows(store, keys=key)} >= expected


def test_unique_keys_are_keys(store: Path) -> None:
    unique = rows(store)[42]["uniqKey"]
    assert numbers(rows(store, keys=unique)) == [42]


def test_without_an_index_keys_are_looked_for_in_the_log(tmp_path: Path) -> None:
    fill(tmp_path, 60)
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    assert numbers(rows(tmp_path, keys="k17")) == [17]


def test_a_lost_file_of_the_index_hides_no_message(tmp_path: Path) -> None:
    fill(tmp_path, 600)
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) > 3
    files[1].unlink()
    files[-1].unlink()
    assert numbers(rows(tmp_path, keys="ten4")) == list(range(4, 600, 10))


def test_half_and_rolled_back_messages_are_in_the_log_only(tmp_path: Path) -> None:
    path = unpack("transactions", tmp_path).path
    log = rows(path, view="commitlog")
    hidden = [row for row in log if row["sysFlag"] & 0xC in (0x4, 0xC)]
    assert hidden
    shown = {row["physicalOffset"] for row in rows(path, includeSystemTopics="true")}
    assert shown == {row["physicalOffset"] for row in log} - {row["physicalOffset"] for row in hidden}


def test_the_stores_own_filler_is_no_row(tmp_path: Path) -> None:
    from penstock.store.filler import filler_record

    fill(tmp_path, 60)
    victim = rows(tmp_path)[20]
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(victim["physicalOffset"])
        file.write(filler_record(victim["physicalOffset"], victim["size"]) or b"")
    for view in ("queue", "commitlog"):
        assert numbers(rows(tmp_path, view=view)) == [n for n in range(60) if n != 20]


def test_inner_batches_are_unwrapped_in_the_queue_view(tmp_path: Path) -> None:
    path = unpack("batches", tmp_path).path
    log = rows(path, view="commitlog", decompress="false")
    wrapped = [row for row in log if row["sysFlag"] & 0x80]
    assert wrapped
    shown = rows(path, decompress="false", includeSystemTopics="true")
    inner = [row for row in shown if row["sysFlag"] & 0x80]
    assert len(inner) > len(wrapped)
    assert {row["physicalOffset"] for row in inner} == {row["physicalOffset"] for row in wrapped}
    # Half of a batch can be asked for.
    first = min(inner, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
    key = (first["topic"], str(first["queueId"]))
    only = rows(
        path,
        assign=json.dumps({first["topic"]: [first["queueId"]]}),
        startingOffsets=json.dumps({key[0]: {key[1]: first["queueOffset"] + 1}}),
        decompress="false",
    )
    every = [row for row in shown if (row["topic"], str(row["queueId"])) == key]
    assert sorted(row["queueOffset"] for row in only) == sorted(row["queueOffset"] for row in every)[1:]


def test_light_queues_are_read_when_asked_for(tmp_path: Path) -> None:
    path = unpack("lmq", tmp_path).path
    with ReadOnlyStore(path) as opened:
        light = [topic for topic in opened.topics() if topic.startswith("%LMQ%")]
        assert light
        expected = {
            (topic, 0, offset, opened.get(topic, 0, offset, 1)[0].physical_offset)
            for topic in light
            for offset in range(opened.min_offset(topic, 0), opened.max_offset(topic, 0))
        }
    found = rows(path, subscribe=",".join(light))
    names = ("topic", "queueId", "queueOffset", "physicalOffset")
    assert {tuple(row[name] for name in names) for row in found} == expected
    assert not any(row["topic"].startswith("%LMQ%") for row in rows(path))


def test_records_that_no_unit_of_the_queue_can_mean_are_left_out(store: Path) -> None:
    """A topic that was removed and made anew counts from 0 again; its old records still lie in the log."""
    data = (store / "commitlog" / f"{0:020d}").read_bytes()
    end = walk(data, 0, len(data), 0).end_position
    first = [row for row in rows(store) if (row["topic"], row["queueId"]) == ("orders", 0)][3][
        "physicalOffset"
    ]
    taken = {}
    for low in (0, first):
        selection = Selection(queues=[("orders", 0, 0, 1000, low, end)], queued=True)
        decoder = Decoder(["queueOffset"], selection=selection)
        assert decoder.feed(data, 0, end, 0) == end
        taken[low] = pa.record_batch(decoder.take()[0]).column(0).to_pylist()
    assert taken[first] == taken[0][3:]
    twice = data[:end] + data[:end]
    decoder = Decoder(
        ["queueOffset"], selection=Selection(queues=[("orders", 0, 0, 1000, 0, 2 * end)], queued=True)
    )
    assert decoder.feed(twice, 0, 2 * end, 0) == 2 * end
    assert pa.record_batch(decoder.take()[0]).column(0).to_pylist() == taken[0]


def test_system_topics_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    path = unpack("broker", tmp_path).path
    every = {row["topic"] for row in rows(path, includeSystemTopics="true")}
    system = {topic for topic in every if topic.startswith(("SCHEDULE_", "RMQ_SYS_", "rmq_sys_"))}
    assert system
    assert {row["topic"] for row in rows(path)} == every - system
    name = sorted(system)[0]
    assert {row["topic"] for row in rows(path, subscribe=name)} == {name}


def test_offsets_that_are_not_there_are_lost_data(store: Path) -> None:
    asked = {
        "subscribe": "orders",
        "startingOffsets": '{"orders":{"0":5}}',
        "endingOffsets": '{"orders":{"0":999}}',
    }
    with pytest.raises(DataLost) as caught:
        rows(store, **asked)
    assert caught.value.ranges == (("orders", 0, 100, 999),)
    found = rows(store, **asked, failOnDataLoss="false")
    assert numbers(found) == [n for n in range(600) if n % 3 == 0 and (n // 3 % 2 == 1 or n // 6 >= 5)]


def test_a_topic_that_is_not_there_is_named(store: Path) -> None:
    with pytest.raises(UsageError, match=r"no message of ordres.*audit, orders, payments"):
        rows(store, subscribe="ordres")
    assert rows(store, subscribe="ordres", failOnDataLoss="false") == []


def test_queues_that_are_not_there_are_named(store: Path) -> None:
    with pytest.raises(UsageError, match=r"orders/7"):
        rows(store, subscribe="orders", startingOffsets='{"orders":{"7":1}}')


def test_segments_alone_are_judged_by_what_their_records_say(store: Path) -> None:
    segment = store / "commitlog" / f"{1 << 16:020d}"
    whole = [row for row in rows(store) if 1 << 16 <= row["physicalOffset"] < 2 << 16]
    assert rows(segment) == whole
    assert rows(store / "commitlog") == rows(store)
    orders = [row for row in whole if row["topic"] == "orders" and row["queueOffset"] >= 50]
    found = rows(segment, subscribe="orders", startingOffsets='{"orders":{"0":50,"1":50}}')
    assert found == orders
    since = whole[10]["storeTimestamp"]
    assert rows(segment, startingTimestamp=since) == whole[10:]
    with pytest.raises(NotAStore, match="whole store directory"):
        rows(segment, startingGroup="g")


def test_a_plan_of_no_ranges_is_empty(store: Path) -> None:
    from penstock.spark.bounds import StoreBounds

    options, _ = planned(store)
    assert plan_queues(StoreBounds(open_places(str(store))[0]), options, []) == []
