"""Compaction leaves the last message of each key: the same map, the same offsets, the same bytes."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from golden_store import unpack
from penstock import Message, open_store
from penstock._native.record import walk
from penstock._native.stored import StoredMessage
from penstock.clock import ManualClock
from penstock.errors import CorruptRecord, PenstockError, StoreError, StoreLocked, UsageError
from penstock.message.topic import is_system_topic
from penstock.spark import jobs
from penstock.store.directory import StoreDirectory
from penstock.store.readonly import ReadOnlyStore
from penstock.store.scan import LogScanner
from penstock.store.verify import verify_store

from .stores import SEGMENT, messages_of, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = 1_790_000_000_000
DAY = 86_400_000
Place = tuple[str, int, int]


def place(message: StoredMessage) -> Place:
    return message.topic, message.queue_id, message.queue_offset


def random_messages(seed: int, topics: list[str], count: int) -> list[Message]:
    """Keys that return often, keys that come once, deletions, messages without a key."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        topic = rng.choice(topics)
        key = rng.choice(
            [None, "a", "b", f"k{rng.randrange(30)}", f"k{rng.randrange(30)} x", f"once{number}"]
        )
        body = b"" if rng.random() < 0.2 else b"%d" % number * rng.randrange(1, 30)
        made.append(Message(topic, body, keys=key, tags=rng.choice("xy"), queue_id=rng.randrange(3)))
    return made


def survivors_of(messages: list[StoredMessage], topics: set[str], dropped_before: int = 0) -> set[Place]:
    """The rule, plainly: keyless messages and other topics, the last of each key, the last of each queue."""
    last: dict[tuple[str, int, str], StoredMessage] = {}
    ends: dict[tuple[str, int], StoredMessage] = {}
    kept = set()
    for message in messages:
        if message.topic in topics:
            ends[message.topic, message.queue_id] = message
        if message.topic not in topics or message.keys is None:
            kept.add(place(message))
        else:
            last[message.topic, message.queue_id, message.keys] = message
    kept |= {place(m) for m in last.values() if m.body or m.store_timestamp >= dropped_before}
    return kept | {place(message) for message in ends.values()}


def replayed(messages: list[StoredMessage], topic: str) -> dict[str, bytes]:
    """What a reader of the topic ends with: an empty body deletes the key."""
    state: dict[str, bytes] = {}
    for message in messages:
        if message.topic == topic and message.keys is not None:
            state[message.keys] = message.body
    return {key: body for key, body in state.items() if body}


def assert_moved_only(before: list[StoredMessage], after: list[StoredMessage]) -> None:
    """Survivors have their records' bytes, but for the physical offset; and their order."""
    records = {place(message): bytes(message.raw) for message in before}
    order = [place(message) for message in before]
    for message in after:
        record, copy = records[place(message)], bytes(message.raw)
        assert copy[:28] + copy[36:] == record[:28] + record[36:]
        assert int.from_bytes(copy[28:36], "big") == message.physical_offset
    kept = [place(message) for message in after]
    assert kept == [one for one in order if one in set(kept)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve topics to compact, each a random history of its own, and two others."""
    topics = [*(f"t{n}" for n in range(12)), "other", "rest"]
    path = tmp_path_factory.mktemp("compact") / "store"
    return written(path, random_messages(1, topics, 3000), clock=ManualClock(NOW))


@pytest.fixture(scope="module")
def compacted(source: Path, spark: SparkSession) -> tuple[Path, Any]:
    target = source.parent / "compacted"
    topics = [f"t{n}" for n in range(12)]
    return target, jobs.compact(spark, source, target, topics=topics, split_bytes=20_000, now_ms=NOW)


def test_replay_of_the_result_gives_the_same_map(source: Path, compacted: tuple[Path, Any]) -> None:
    before, after = messages_of(source), messages_of(compacted[0])
    for number in range(12):
        assert replayed(after, f"t{number}") == replayed(before, f"t{number}")
    assert len(after) < len(before)


def test_exactly_the_last_messages_survive_with_their_bytes_and_order(
    source: Path, compacted: tuple[Path, Any]
) -> None:
    before, after = messages_of(source), messages_of(compacted[0])
    assert {place(m) for m in after} == survivors_of(before, {f"t{n}" for n in range(12)})
    assert_moved_only(before, after)


def test_result_is_a_whole_store(source: Path, compacted: tuple[Path, Any]) -> None:
    target, result = compacted
    report = verify_store(str(target))
    assert report.healthy, report.faults
    assert (report.records, result.records_after) == (len(messages_of(target)),) * 2
    assert result.records_before == len(messages_of(source))
    assert result.bytes_after == sum(m.size for m in messages_of(target))
    assert sorted(p.name for p in target.parent.iterdir()) == ["compacted", "store"]


def test_queues_answer_by_their_old_offsets(source: Path, compacted: tuple[Path, Any]) -> None:
    target, _ = compacted
    after = messages_of(target)
    with ReadOnlyStore(source) as old, ReadOnlyStore(target) as new:
        assert new.queues() == old.queues()
        for topic, queue_id in old.queues():
            assert new.max_offset(topic, queue_id) == old.max_offset(topic, queue_id)
            found, offset = [], 0
            while offset < new.max_offset(topic, queue_id):
                result = new.get(topic, queue_id, max(offset, new.min_offset(topic, queue_id)))
                found += [place(m) for m in result.messages]
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
            assert found == [place(m) for m in after if (m.topic, m.queue_id) == (topic, queue_id)]
        key = next(m for m in after if m.topic == "t3" and m.keys == "a")
        assert place(key) in [place(m) for m in new.query("t3", "a")]


def test_a_queue_goes_on_where_it_was(compacted: tuple[Path, Any], tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(compacted[0], copy)
    with open_store(copy) as store:
        end = store.max_offset("t1", 0)
        result = store.put(Message("t1", b"next", keys="a", queue_id=0))
        assert result.queue_offset == end
    assert verify_store(str(copy)).healthy


def test_no_survivor_lies_where_rocketmq_skips_after_a_blank(compacted: tuple[Path, Any]) -> None:
    """A blank unit points to 0: what fails to be read there makes RocketMQ skip the rest of that log file."""
    target, _ = compacted
    first = (target / "commitlog" / f"{0:020d}").read_bytes()
    assert first[:8] == struct.pack(">iI", SEGMENT, 0xCBD43194)
    assert not any(first[8:])
    assert all(message.physical_offset >= SEGMENT for message in messages_of(target))
    units = [
        unit
        for file in (target / "consumequeue" / "t1").rglob("0*")
        if file.is_file()
        for unit in struct.iter_unpack(">qiq", file.read_bytes())
    ]
    assert (0, 0x7FFFFFFF, 0) in units
    assert all(unit[0] >= SEGMENT or unit in ((0, 0x7FFFFFFF, 0), (0, 0, 0)) for unit in units)


def test_dry_run_tells_the_same_and_writes_nothing(
    source: Path, compacted: tuple[Path, Any], spark: SparkSession
) -> None:
    before = sorted(source.parent.iterdir())
    topics = [f"t{n}" for n in range(12)]
    told = jobs.compact(spark, source, topics=topics, dry_run=True, now_ms=NOW).as_dict()
    done = compacted[1].as_dict()
    for values in (told, done):
        for name in ("seconds", "target", "dry_run", "segments"):
            values.pop(name)
    assert told == done
    assert sorted(source.parent.iterdir()) == before


def test_deletions_are_kept_until_they_are_old(tmp_path: Path, spark: SparkSession) -> None:
    clock = ManualClock(NOW)
    with open_store(tmp_path / "s", clock=clock, flush="async") as store:
        store.put_many(
            [Message("t", b"1", keys="old"), Message("t", b"1", keys="new"), Message("t", b"", keys="old")]
        )
        clock.advance(DAY)
        store.put_many([Message("t", b"", keys="new"), Message("t", b"v", keys="end")])
    before = messages_of(tmp_path / "s")

    def left(name: str, age: int) -> tuple[list[tuple[str | None, bytes]], Any]:
        target = tmp_path / name
        result = jobs.compact(
            spark, tmp_path / "s", target, topics=["t"], tombstone_age_ms=age, now_ms=NOW + DAY + 1000
        )
        assert verify_store(str(target)).healthy
        assert replayed(messages_of(target), "t") == replayed(before, "t") == {"end": b"v"}
        return [(m.keys, m.body) for m in messages_of(target)], result

    kept, result = left("two-days", 2 * DAY)
    assert kept == [("old", b""), ("new", b""), ("end", b"v")]
    assert (result.tombstones_kept, result.tombstones_dropped, result.keys) == (2, 0, 3)
    kept, result = left("one-day", DAY)
    assert kept == [("new", b""), ("end", b"v")]
    assert (result.tombstones_kept, result.tombstones_dropped) == (1, 1)


def test_last_message_of_a_queue_stays_even_if_it_is_an_old_deletion(
    tmp_path: Path, spark: SparkSession
) -> None:
    path = written(
        tmp_path / "s", [Message("t", b"1", keys="k"), Message("t", b"", keys="k")], clock=ManualClock(NOW)
    )
    jobs.compact(spark, path, tmp_path / "c", topics=["t"], tombstone_age_ms=0, now_ms=NOW + DAY)
    assert [m.queue_offset for m in messages_of(tmp_path / "c")] == [1]
    with ReadOnlyStore(tmp_path / "c") as store:
        assert store.max_offset("t", 0) == 2


def test_keyless_messages_and_other_topics_go_when_asked(tmp_path: Path, spark: SparkSession) -> None:
    path = written(tmp_path / "s", [*random_messages(5, ["t", "u"], 300), Message("t", b"end")])
    result = jobs.compact(spark, path, tmp_path / "c", topics=["t"], keyless="drop", others="drop")
    before, after = messages_of(path), messages_of(tmp_path / "c")
    ends = {m.queue_id: m for m in before if m.topic == "t"}
    expected = {place(m) for m in before if m.topic == "t" and m.keys is not None}
    expected &= survivors_of(before, {"t"})
    assert {place(m) for m in after} == expected | {place(m) for m in ends.values()}
    assert result.records_after == len(after)
    assert verify_store(str(tmp_path / "c")).healthy


def test_in_place_keeps_what_was_there(tmp_path: Path, spark: SparkSession) -> None:
    path = written(tmp_path / "s", random_messages(6, ["t"], 200))
    before = messages_of(path)
    result = jobs.compact(spark, path, topics=["t"], in_place=True, now_ms=0)
    assert {place(m) for m in messages_of(path)} == survivors_of(before, {"t"})
    assert [place(m) for m in messages_of(Path(result.replaced))] == [place(m) for m in before]
    assert verify_store(str(path)).healthy
    assert result.target == str(path)


def test_whole_record_checksums_are_right_again(tmp_path: Path, spark: SparkSession) -> None:
    golden = unpack("prop-crc", tmp_path / "golden")
    topics = sorted({m.topic for m in messages_of(golden.path)})
    jobs.compact(spark, golden.path, tmp_path / "c", topics=topics)
    directory = StoreDirectory(None, str(tmp_path / "c"))
    checked = 0
    for run in LogScanner(directory).runs():
        checked += walk(run.view, 0, run.end, run.base, check_property_crc=True).records
    assert checked == len(messages_of(tmp_path / "c")) > 0


@pytest.mark.parametrize(
    "case",
    [
        "basic",
        "transactions",
        *(
            pytest.param(case, marks=pytest.mark.cluster)
            for case in ("hosts-ipv6", "long-topics", "deleted-head", "v4-basic")
        ),
    ],
)
def test_stores_of_rocketmq_are_compacted_the_same(case: str, tmp_path: Path, spark: SparkSession) -> None:
    golden = unpack(case, tmp_path / "golden")
    before = messages_of(golden.path)
    topics = {m.topic for m in before if not is_system_topic(m.topic)}
    jobs.compact(spark, golden.path, tmp_path / "c", topics=sorted(topics), now_ms=0)
    after = messages_of(tmp_path / "c")
    report = verify_store(str(tmp_path / "c"))
    assert report.healthy, report.faults
    queued = [m for m in before if m.sys_flag & 0xC in (0, 8)]
    assert {place(m) for m in after if m.sys_flag & 0xC in (0, 8)} == survivors_of(queued, topics)
    assert len([m for m in after if m.sys_flag & 0xC in (4, 12)]) == len(before) - len(queued)


def test_groups_go_on_with_the_first_message_they_have_not_read(tmp_path: Path, spark: SparkSession) -> None:
    with open_store(tmp_path / "s", flush="async") as store:
        store.put_many([Message("t", b"%d" % n, keys=f"k{n % 3}") for n in range(30)])
        store.consumer_offsets.commit("late", "t", 0, 17)
        store.consumer_offsets.commit("early", "t", 0, 28)
    jobs.compact(spark, tmp_path / "s", tmp_path / "c", topics=["t"])
    with ReadOnlyStore(tmp_path / "c") as store:
        assert store.consumer_offsets.query("early", "t", 0) == 28
        # Nothing is left before 27, so that is where the late one goes on.
        assert store.consumer_offsets.query("late", "t", 0) == store.min_offset("t", 0) == 27


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topics": []}, "no topic"),
        ({"topics": ["SCHEDULE_TOPIC_XXXX"]}, "belongs to the broker"),
        ({"topics": ["t"], "keyless": "maybe"}, "keep"),
        ({"topics": ["t"], "target": "store"}, "there already"),
        ({"topics": ["t"], "target": None}, "no target"),
        ({"topics": ["t"], "in_place": True}, "contradict"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    written(tmp_path / "store", [Message("t", b"1", keys="k")])
    options = {"target": "new", **options}
    target = options.pop("target")
    with pytest.raises(UsageError, match=words):
        jobs.compact(None, tmp_path / "store", None if target is None else tmp_path / target, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


def test_a_store_in_use_is_not_replaced(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        store.put(Message("t", b"1", keys="k"))
        with pytest.raises(StoreLocked):
            jobs.compact(None, tmp_path / "s", topics=["t"], in_place=True)


def test_timer_messages_are_not_torn_from_their_log(tmp_path: Path) -> None:
    golden = unpack("broker", tmp_path / "golden")
    with pytest.raises(StoreError, match="timer"):
        jobs.compact(None, golden.path, tmp_path / "c", topics=["TopicTest"])
    assert not (tmp_path / "c").exists()


def test_damage_ends_it_and_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    path = written(tmp_path / "s", random_messages(7, ["t"], 300))
    victim = messages_of(path)[100]
    with open(path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(victim.physical_offset + 90)
        file.write(b"\xff\xff\xff")
    with pytest.raises(PenstockError) as caught:
        jobs.compact(spark, path, tmp_path / "c", topics=["t"])
    assert isinstance(caught.value, CorruptRecord)
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
