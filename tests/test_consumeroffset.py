"""Offsets of consumer groups: RocketMQ's file, read and written."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.errors import CorruptFile
from penstock.files.disk import DiskStorage
from penstock.format.javajson import parse
from penstock.store.consumeroffset import (
    VERSION_STEP,
    Clamped,
    ConsumerOffsets,
    clamp_offset,
    consumer_offsets,
)
from penstock.store.jsonfile import load_json

REAL_FILE = Path(__file__).parent / "data" / "config" / "consumerOffset.json"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "config" / "consumerOffset.json")


@pytest.fixture
def offsets(path: str) -> ConsumerOffsets:
    return make(path)


def make(path: str) -> ConsumerOffsets:
    offsets = ConsumerOffsets(DiskStorage(), path, clock=ManualClock(1000))
    offsets.load()
    return offsets


def test_file_of_a_real_broker_is_understood() -> None:
    offsets = make(str(REAL_FILE))
    assert offsets.table() == {
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TRANS"): {0: 1},
        ("golden_topic", "golden_consumer"): {0: 10, 1: 10, 2: 10, 3: 10},
        ("RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"): {0: 9},
    }
    assert offsets.query("golden_consumer", "golden_topic", 3) == 10
    assert offsets.version.timestamp == 1794712547784
    assert offsets.groups("golden_topic") == ["golden_consumer"]


def test_file_is_written_in_the_shape_of_rocketmqs(path: str, offsets: ConsumerOffsets) -> None:
    Path(path).parent.mkdir()
    Path(path).write_bytes(REAL_FILE.read_bytes())
    offsets.load()
    offsets.commit("golden_consumer", "golden_topic", 0, 11)
    assert offsets.persist()
    expected = REAL_FILE.read_text().split('\n\t"pullOffsetTable"')[0].removesuffix(",") + "\n}"
    expected = expected.replace(
        '"golden_topic@golden_consumer":{\n\t\t\t0:10', '"golden_topic@golden_consumer":{\n\t\t\t0:11'
    )
    written = Path(path).read_text()
    # Only the order of the groups may differ: Java's is that of its hash table.
    assert sorted(written.splitlines()) == sorted(expected.splitlines())
    assert load_json(DiskStorage(), path)["offsetTable"]["golden_topic@golden_consumer"] == {
        0: 11,
        1: 10,
        2: 10,
        3: 10,
    }


def test_committed_offset_survives_a_restart(path: str, offsets: ConsumerOffsets) -> None:
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 7, 0)
    offsets.commit("other", "t", 0, 2**62)
    offsets.persist()
    again = make(path)
    assert again.offsets("g", "t") == {0: 5, 7: 0}
    assert again.query("other", "t", 0) == 2**62
    assert again.groups("t") == ["g", "other"]


def test_group_that_never_committed_has_no_offset(offsets: ConsumerOffsets) -> None:
    assert offsets.query("g", "t", 0) == -1
    assert offsets.offsets("g", "t") == {}


def test_offset_may_go_back(offsets: ConsumerOffsets) -> None:
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 0, 2)
    assert offsets.query("g", "t", 0) == 2


def test_persist_writes_only_what_changed(path: str, offsets: ConsumerOffsets) -> None:
    assert not offsets.persist()
    assert not Path(path).exists()
    offsets.commit("g", "t", 0, 5)
    assert offsets.persist()
    offsets.commit("g", "t", 0, 5)
    assert not offsets.persist()


def test_version_advances_once_in_five_hundred_commits(path: str, offsets: ConsumerOffsets) -> None:
    for offset in range(VERSION_STEP - 1):
        offsets.commit("g", "t", 0, offset)
    assert offsets.version.counter == 0
    offsets.commit("g", "t", 0, VERSION_STEP)
    assert (offsets.version.counter, offsets.version.timestamp) == (1, 1000)
    offsets.persist()
    assert make(path).version == offsets.version


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "offset"),
    [
        ("", "t", 0, 0),
        ("g", "", 0, 0),
        ("g", "a@b", 0, 0),
        ("g", "t", -1, 0),
        ("g", "t", 0, -1),
        ("g", "t", 0, 2**63),
    ],
)
def test_commit_of_no_place_is_refused(
    offsets: ConsumerOffsets, group: str, topic: str, queue_id: int, offset: int
) -> None:
    with pytest.raises(ValueError, match="no "):
        offsets.commit(group, topic, queue_id, offset)
    assert offsets.table() == {}


def test_s16_torn_offsets_are_served_by_the_backup_and_written_anew(
    path: str, offsets: ConsumerOffsets
) -> None:
    offsets.commit("g", "t", 0, 5)
    offsets.persist()
    offsets.commit("g", "t", 0, 6)
    offsets.persist()
    Path(path).write_text('{\n\t"offsetTable":{')
    again = make(path)
    assert again.query("g", "t", 0) == 5
    assert again.fault is not None and path in str(again.fault)
    assert again.persist()
    assert make(path).fault is None
    assert make(path).query("g", "t", 0) == 5


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"offsetTable":[1]}',
        '{"offsetTable":{"t@g":5}}',
        '{"offsetTable":{"t@g":{x:5}}}',
        '{"offsetTable":{"t@g":{0:"5"}}}',
        '{"offsetTable":{"t@g":{0:99999999999999999999}}}',
        '{"offsetTable":{"t@g":{-1:5}}}',
        '{"dataVersion":{"counter":[1]}}',
        '{"dataVersion":7}',
    ],
)
def test_s16_offsets_of_a_wrong_shape_are_an_error_not_a_start_at_zero(path: str, text: str) -> None:
    Path(path).parent.mkdir()
    Path(path).write_text(text)
    with pytest.raises(CorruptFile, match=r"consumerOffset\.json"):
        make(path)


def test_keys_of_another_version_survive_a_rewrite(path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).write_text('{"offsetTable":{"no separator":{0:1},"t@g":{"3":4}},"somethingNew":{}}')
    offsets = make(path)
    assert offsets.table() == {("t", "g"): {3: 4}}
    offsets.commit("g", "t", 3, 5)
    offsets.persist()
    assert load_json(DiskStorage(), path)["offsetTable"] == {"no separator": {0: 1}, "t@g": {3: 5}}


def test_removing_forgets_a_topic_or_a_group(offsets: ConsumerOffsets) -> None:
    for group, topic in [("g", "a"), ("g", "b"), ("h", "a")]:
        offsets.commit(group, topic, 0, 1)
    assert offsets.remove(topic="a") == 2
    assert list(offsets.table()) == [("b", "g")]
    assert offsets.remove(group="g", topic="b") == 1
    assert offsets.remove(group="g") == 0
    with pytest.raises(ValueError, match="name a topic"):
        offsets.remove()


def test_s07_offsets_behind_a_cut_log_are_moved_to_its_end(path: str, offsets: ConsumerOffsets) -> None:
    offsets.commit("g", "t", 0, 100)
    offsets.commit("g", "t", 1, 3)
    offsets.commit("g", "t", 2, 50)
    offsets.commit("g", "gone", 0, 7)
    ends = {("t", 0): (0, 60), ("t", 1): (10, 60), ("t", 2): (0, 60)}
    moved = offsets.clamp(lambda topic, queue_id: ends.get((topic, queue_id)))
    assert moved == [Clamped("g", "t", 0, 100, 60), Clamped("g", "t", 1, 3, 10)]
    assert offsets.persist()
    assert make(path).table() == {("t", "g"): {0: 60, 1: 10, 2: 50}, ("gone", "g"): {0: 7}}


@given(st.integers(), st.integers(0, 100), st.integers(0, 100))
def test_clamped_offset_is_inside_and_an_inside_one_unmoved(offset: int, low: int, length: int) -> None:
    clamped = clamp_offset(offset, low, low + length)
    assert low <= clamped <= low + length
    assert clamped == offset or not low <= offset <= low + length


def test_commits_of_many_threads_are_all_persisted(path: str, offsets: ConsumerOffsets) -> None:
    def work(queue_id: int) -> None:
        for offset in range(200):
            offsets.commit("g", "t", queue_id, offset)
            if offset % 50 == 0:
                offsets.persist()

    threads = [threading.Thread(target=work, args=(queue_id,)) for queue_id in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    offsets.persist()
    assert make(path).offsets("g", "t") == dict.fromkeys(range(4), 199)


LIGHT_GROUP = "%LMQ%g"


def light_files(path: Path) -> tuple[Path, Path]:
    return path / "config" / "consumerOffset.json", path / "config" / "lmqConsumerOffset.json"


def test_file_of_a_real_broker_with_light_queues_is_understood_and_written_alike(tmp_path: Path) -> None:
    _, light = light_files(tmp_path)
    light.parent.mkdir()
    real = REAL_FILE.with_name(light.name).read_text()
    light.write_text(real)
    offsets = consumer_offsets(DiskStorage(), str(tmp_path), light=True)
    offsets.load()
    assert offsets.table() == {
        ("T", LIGHT_GROUP): {0: 9},
        ("%LMQ%q", LIGHT_GROUP): {0: 7},
        ("T", "G"): {1: 5},
    }
    offsets.commit("G", "T", 1, 6)
    assert offsets.persist()
    expected = real.split(',\n\t"pullOffsetTable"')[0].replace("1:5", "1:6") + "\n}"
    written = light.read_text()
    assert sorted(line.strip(",") for line in written.splitlines()) == sorted(
        line.strip(",") for line in expected.splitlines()
    )


def test_with_light_queues_all_offsets_are_where_rocketmq_has_them(tmp_path: Path) -> None:
    plain, light = light_files(tmp_path)
    offsets = consumer_offsets(DiskStorage(), str(tmp_path), light=True, clock=ManualClock(1000))
    offsets.load()
    offsets.commit("g", "t", 1, 5)
    offsets.commit(LIGHT_GROUP, "%LMQ%q", 0, 7)
    offsets.commit(LIGHT_GROUP, "t", 0, 8)
    offsets.commit(LIGHT_GROUP, "t", 3, 9)
    assert offsets.persist()
    assert not plain.exists()
    content = parse(light.read_text())
    assert content["lmqOffsetTable"] == {"%LMQ%q@%LMQ%g": 7, "t@%LMQ%g": 8}
    assert content["offsetTable"] == {"t@g": {1: 5}, "t@%LMQ%g": {0: 8, 3: 9}}

    again = consumer_offsets(DiskStorage(), str(tmp_path), light=True)
    again.load()
    assert again.table() == offsets.table()
    assert not again.persist()


@pytest.mark.parametrize("light", [False, True])
def test_offsets_go_over_to_the_other_file_when_light_queues_are_switched(
    tmp_path: Path, light: bool
) -> None:
    before = consumer_offsets(DiskStorage(), str(tmp_path), light=not light)
    before.load()
    before.commit("g", "t", 1, 5)
    before.commit(LIGHT_GROUP, "%LMQ%q", 0, 7)
    before.persist()
    after = consumer_offsets(DiskStorage(), str(tmp_path), light=light)
    after.load()
    assert after.table() == before.table()
    assert after.persist()
    # From now on the file of the setting counts alone: what was forgotten stays forgotten.
    after.remove(group="g")
    after.persist()
    last = consumer_offsets(DiskStorage(), str(tmp_path), light=light)
    last.load()
    assert last.query("g", "t", 1) == -1
    assert last.query(LIGHT_GROUP, "%LMQ%q", 0) == 7


@pytest.mark.parametrize("table", ['"x"', "[1]", '{"t@g": {"0": 1}}', '{"t@g": "x"}', '{"t@g": null}'])
def test_a_table_of_light_offsets_that_is_none_makes_the_file_bad(tmp_path: Path, table: str) -> None:
    _, light = light_files(tmp_path)
    light.parent.mkdir()
    light.write_text(f'{{"offsetTable": {{}}, "lmqOffsetTable": {table}}}')
    with pytest.raises(CorruptFile):
        consumer_offsets(DiskStorage(), str(tmp_path), light=True).load()
