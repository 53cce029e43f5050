"""The puts of real RocketMQ, repeated: the same bytes in log, queues and index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden_store import body_of, unpack
from penstock import Message, StoreConfig, open_store
from penstock.clock import ManualClock

CASES = ["basic", "hosts-ipv6", "transactions", "index-rolled", "prop-crc", "transient-pool"]


def message_of(put: dict[str, Any]) -> Message:
    return Message(
        put["topic"],
        body_of(put["body"]),
        queue_id=put["queueId"],
        flag=put["flag"],
        sys_flag=put["sysFlag"],
        born_timestamp=put["bornTimestamp"],
        born_host=put["bornHost"],
        store_host=put["storeHost"],
        reconsume_times=put["reconsumeTimes"],
        prepared_transaction_offset=put["preparedTransactionOffset"],
        raw_properties=(put["propertiesString"] or "").encode(),
    )


@pytest.mark.parametrize("case", CASES)
def test_the_same_puts_give_the_same_bytes(case: str, tmp_path: Path) -> None:
    golden = unpack(case, tmp_path)
    given = golden.manifest["config"]
    puts = [p for p in golden.manifest["puts"] if p["status"] == "PUT_OK"]
    if any("batch" in put for put in puts):
        puts = puts[: next(i for i, put in enumerate(puts) if "batch" in put)]
    clock = ManualClock(puts[0]["storeTimestamp"])
    config = StoreConfig(
        flush_disk_type="async",
        mapped_file_size_commit_log=given["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=given["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=given["maxHashSlotNum"],
        max_index_num=given["maxIndexNum"],
        enabled_append_prop_crc=bool(given.get("enabledAppendPropCRC", False)),
        timer_wheel_enable=False,
    )
    ours = tmp_path / "ours"
    with open_store(ours, config=config, clock=clock, background=False) as store:
        for put in puts:
            clock.set(put["storeTimestamp"])
            result = store.put_raw(message_of(put))
            assert (result.status, result.queue_offset, result.physical_offset, result.message_id) == (
                "PUT_OK",
                put["queueOffset"],
                put["physicalOffset"],
                put["msgId"],
            )
        end = store.max_physical_offset
        store.dispatch()
    whole = len(puts) == len([p for p in golden.manifest["puts"] if p["status"] == "PUT_OK"])
    for file in golden.files("commitlog"):
        start = int(file.name)
        if start < end:
            theirs, mine = file.read_bytes(), (ours / "commitlog" / file.name).read_bytes()
            length = min(len(theirs), end - start)
            assert mine[:length] == theirs[:length], file.name
    if whole:
        for folder in (golden.path / "consumequeue").glob("*/*"):
            for file in folder.iterdir():
                assert (ours / file.relative_to(golden.path)).read_bytes() == file.read_bytes(), file
        theirs_index = [f.read_bytes() for f in golden.files("index")]
        assert [f.read_bytes() for f in sorted((ours / "index").iterdir())] == theirs_index
