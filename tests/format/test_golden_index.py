"""The index files of the golden directories: rebuilt byte for byte, and asked what the original was asked."""

from __future__ import annotations

import pytest

from format.golden_log import GoldenLog
from golden_store import CASES, KILLED_CASES
from penstock.format.indexfile import index_key, query_offsets

CLEAN_CASES = [case for case in CASES if case not in KILLED_CASES]


def ask(log: GoldenLog) -> int:
    """Compare every answer of the manifest with ours; the number compared.

    Where the raw answer of the index is not given, the records that were found are: in the order of the log.
    """
    files = log.read_index()
    present = log.by_offset
    for query in log.store.answers["queryMessage"]:
        key = index_key(query["topic"], query["key"], query.get("indexType"))
        answer = query_offsets(files, key, query["max"], query["begin"], query["end"])
        assert sorted(offset for offset in answer if offset in present) == query["physicalOffsets"]
        if "indexOffsets" in query:
            newest = files[-1].header
            assert answer == query["indexOffsets"]
            assert newest.end_timestamp == query["indexLastUpdateTimestamp"]
            assert newest.end_physical_offset == query["indexLastUpdatePhysicalOffset"]
    return len(log.store.answers["queryMessage"])


@pytest.mark.parametrize("golden_log", [c for c in CLEAN_CASES if c != "deleted-head"], indirect=True)
def test_a_clean_index_is_rebuilt_byte_for_byte(golden_log: GoldenLog) -> None:
    rebuilt, stored = golden_log.build_index(), golden_log.read_index()
    assert [file.header for file in rebuilt] == [file.header for file in stored]
    assert [bytes(file.data) for file in rebuilt] == [bytes(file.data) for file in stored]


@pytest.mark.parametrize("golden_log", [c for c in CLEAN_CASES if c != "broker"], indirect=True)
def test_index_answers_are_those_of_the_original(golden_log: GoldenLog) -> None:
    assert ask(golden_log) > 0


@pytest.mark.parametrize("recovered_log", KILLED_CASES, indirect=True)
def test_recovered_index_answers_are_those_of_the_original(recovered_log: GoldenLog) -> None:
    assert ask(recovered_log) > 0


@pytest.mark.parametrize("golden_log", ["index-rolled"], indirect=True)
def test_a_key_leads_to_every_record_that_has_it(golden_log: GoldenLog) -> None:
    files = golden_log.read_index()
    for record in golden_log.records:
        for key in (record.keys or "").split():
            found = query_offsets(files, index_key(record.topic, key), 1000, 0, 1 << 62, max_batch=1000)
            assert record.physical_offset in found
