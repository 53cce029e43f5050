"""Topic names and sys flags."""

from __future__ import annotations

import pytest

from penstock.message import validate_topic
from penstock.message.sysflag import (
    TRANSACTION_COMMIT_TYPE,
    compression_type,
    has_index_entry,
    has_queue_unit,
    transaction_type,
    with_transaction_type,
)
from penstock.message.topic import FORBIDDEN_TOPICS, is_path_safe, is_system_topic, max_topic_bytes


@pytest.mark.parametrize("name", ["a", "Topic-1_2|3%", "a" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250])
def test_legal_topics(name: str) -> None:
    assert validate_topic(name) is None


@pytest.mark.parametrize("name", ["", "a" * 128, "%RETRY%" + "g" * 249, "a b", "../x", "主题", "a\n", "a/b"])
def test_illegal_topics_are_refused_with_a_reason(name: str) -> None:
    assert "topic" in (validate_topic(name) or "")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0", "/"])
def test_names_that_would_leave_their_folder_are_not_path_safe(name: str) -> None:
    assert not is_path_safe(name)


@pytest.mark.parametrize("name", ["a", "...", "%LMQ%a", "主题", "a b"])
def test_names_that_can_be_folders_are_path_safe(name: str) -> None:
    assert is_path_safe(name)


def test_only_retry_topics_may_be_long() -> None:
    assert max_topic_bytes("%RETRY%g") == 255
    assert max_topic_bytes("%DLQ%g") == 127
    assert max_topic_bytes("t") == 127


def test_topics_of_the_system_are_known() -> None:
    assert is_system_topic("rmq_sys_wheel_timer")
    assert all(is_system_topic(topic) for topic in FORBIDDEN_TOPICS)
    assert not is_system_topic("orders")


def test_transaction_types_decide_visibility() -> None:
    visible = [(has_queue_unit(kind), has_index_entry(kind)) for kind in (0x0, 0x4, 0x8, 0xC)]
    assert visible == [(True, True), (False, True), (True, True), (False, False)]
    flag = with_transaction_type(0x7F3 | 0x4, TRANSACTION_COMMIT_TYPE)
    assert (transaction_type(flag), flag & ~0xC) == (TRANSACTION_COMMIT_TYPE, 0x7F3)


def test_compression_types() -> None:
    assert [compression_type(1 | kind << 8) for kind in range(4)] == ["zlib", "lz4", "zstd", "zlib"]
    assert compression_type(0x200) is None
    with pytest.raises(ValueError, match="compression type 5"):
        compression_type(0x501)
