"""Directories that we wrote, opened by RocketMQ: nothing lost, same answers, it appends, and we read on."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interop_support import (
    Answer,
    JavaSide,
    compare_gets,
    compare_messages,
    compare_queries,
    compare_times,
    our_config,
    read_queue,
)

from penstock import open_store
from penstock.bench.peer import VERSIONS, Version
from penstock.spark.publishing import Publication, settle
from penstock.store.backup import backup_store
from penstock.store.repair import repair_store
from spark.write.publishing import numbers_in, publish_killed, stage

SMALL: dict[str, Any] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "mapperFileSizeBatchConsumeQueue": 46 * 16,
}
COMMON = {"batches", "hosts", "transactions", "delay"}
NEWER = {"long-topics", "lmq", "inner-batches"}
VARIANTS: dict[str, dict[str, Any]] = {
    "sync": {"flushDiskType": "SYNC_FLUSH"},
    "async": {"flushDiskType": "ASYNC_FLUSH"},
    "queue-ext": {
        "flushDiskType": "ASYNC_FLUSH",
        "enableConsumeQueueExt": True,
        "mappedFileSizeConsumeQueueExt": 4096,
    },
    "transient-pool": {
        "flushDiskType": "ASYNC_FLUSH",
        "transientStorePoolEnable": True,
        "transientStorePoolSize": 3,
    },
    "prop-crc": {"flushDiskType": "SYNC_FLUSH", "enabledAppendPropCRC": True, "forceVerifyPropCRC": True},
}
CASES = [
    (version, variant)
    for version in VERSIONS
    for variant in VARIANTS
    if version == "5.5.0" or variant != "prop-crc"
]
KILLED_VARIANTS = [(version, variant) for version, variant in CASES if variant in ("sync", "prop-crc")]

Java = Callable[[Version], JavaSide]


def settings(version: Version, variant: str) -> dict[str, Any]:
    newer = {"enableLmq": True, "enableMultiDispatch": True} if version == "5.5.0" else {}
    return {**SMALL, **VARIANTS[variant], **newer}


def start_writer(path: Path, version: Version, variant: str, count: int) -> subprocess.Popen[bytes]:
    features = COMMON | (NEWER if version == "5.5.0" else set())
    arguments = [str(path), json.dumps(settings(version, variant)), ",".join(sorted(features)), str(count)]
    script = str(Path(__file__).with_name("interop_writer.py"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, script, *arguments], stdout=subprocess.PIPE, env=environment)


def write_and_close(path: Path, version: Version, variant: str) -> list[Answer]:
    with start_writer(path, version, variant, 500) as writer:
        assert writer.stdout is not None
        lines = writer.stdout.read().splitlines()
    assert writer.returncode == 0
    return [json.loads(line) for line in lines]


def write_and_kill(path: Path, version: Version, variant: str) -> list[Answer]:
    """What was acknowledged before the writer was killed with puts under way."""
    with start_writer(path, version, variant, 0) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(400)]
        writer.send_signal(signal.SIGKILL)
        # Reported before the kill, read after it. The last line may be cut.
        rest = writer.stdout.read().split(b"\n")[:-1]
    assert writer.returncode == -signal.SIGKILL
    return [json.loads(line) for line in [*lines, *rest]]


def check_kept(acknowledged: list[Answer], holds: Answer) -> None:
    """RocketMQ finds each acknowledged message at its place with its body, each once."""
    looked = {message["offset"]: message for message in holds["lookMessageByOffset"]}
    assert len(looked) == len(acknowledged)
    for put in acknowledged:
        found = looked[put["physical_offset"]]
        assert found["found"], put
        body = base64.b64decode(found["body"])
        assert hashlib.md5(body, usedforsecurity=False).hexdigest() == put["body_md5"]
        assert found["properties"]["UNIQ_KEY"] == put["unique_key"]
        if put["delay_level"] == 0:
            assert (found["topic"], found["queueId"]) == (put["topic"], put["queue_id"])
    unique = [
        message["properties"]["UNIQ_KEY"]
        for message in holds["messages"]
        if message["queue"] == message["topic"]
    ]
    assert len(unique) == len(set(unique))


def check_both_ways(
    java: JavaSide, path: Path, acknowledged: list[Answer], config: dict[str, Any], halt: bool
) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    lookups = [put["physical_offset"] for put in acknowledged]
    topics = ["inner"] if java.version == "5.5.0" else []
    opened = java.open(path, config, batchQueueTopics=topics, lookups=lookups, append=40, halt=halt)
    if halt:
        java.wait_killed()
    holds = opened["holds"]
    check_kept(acknowledged, holds)
    with open_store(copy, config=our_config(config)) as store:
        assert store.max_physical_offset == holds["maxPhysicalOffset"]
        compare_messages(store, holds)
        compare_gets(store, holds)
        compare_queries(store, holds)
        compare_times(store, holds)
    with open_store(path, config=our_config(config)) as store:
        for put in acknowledged:
            message = store.lookup(put["physical_offset"])
            assert message is not None
            assert hashlib.md5(bytes(message.body), usedforsecurity=False).hexdigest() == put["body_md5"]
        for put in opened["appended"]:
            queue = read_queue(store, put["topic"], put["queueId"])
            at = put["queueOffset"] - store.min_offset(put["topic"], put["queueId"])
            assert queue[at].physical_offset == put["physicalOffset"]
            key = put["propertiesGiven"]["KEYS"]
            found = [message.physical_offset for message in store.query(put["topic"], key)]
            assert found == [put["physicalOffset"]]


@pytest.mark.parametrize(("version", "variant"), CASES)
def test_rocketmq_reads_and_continues_a_store_that_we_closed(
    java: Java, tmp_path: Path, version: Version, variant: str
) -> None:
    path = tmp_path / "store"
    acknowledged = write_and_close(path, version, variant)
    assert len(acknowledged) >= 500
    check_both_ways(java(version), path, acknowledged, settings(version, variant), halt=False)


@pytest.mark.parametrize(("version", "variant"), KILLED_VARIANTS)
def test_rocketmq_recovers_a_store_whose_writer_was_killed(
    java: Java, tmp_path: Path, version: Version, variant: str
) -> None:
    path = tmp_path / "store"
    acknowledged = write_and_kill(path, version, variant)
    assert len(acknowledged) >= 400
    check_both_ways(java(version), path, acknowledged, settings(version, variant), halt=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_we_recover_after_rocketmq_continued_ours_and_was_killed(
    java: Java, tmp_path: Path, version: Version
) -> None:
    path = tmp_path / "store"
    acknowledged = write_and_close(path, version, "sync")
    check_both_ways(java(version), path, acknowledged, settings(version, "sync"), halt=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_rocketmq_opens_a_backup_taken_while_we_wrote(java: Java, tmp_path: Path, version: Version) -> None:
    path, target = tmp_path / "live", tmp_path / "store"
    with start_writer(path, version, "sync", 0) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(400)]
        report = backup_store(str(path), str(target))
        writer.send_signal(signal.SIGKILL)
        writer.stdout.read()
    acknowledged = [json.loads(line) for line in lines]
    kept = [put for put in acknowledged if put["physical_offset"] < report.end_offset]
    assert len(kept) == len(acknowledged)
    check_both_ways(java(version), target, kept, settings(version, "sync"), halt=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_rocketmq_sees_nothing_of_a_write_from_spark_that_was_killed_before_its_end(
    java: Java, tmp_path: Path, version: Version
) -> None:
    path = tmp_path / "store"
    acknowledged = write_and_close(path, version, "sync")
    with open_store(path, read_only=True) as store:
        end = store.max_physical_offset
    publish_killed(path, Publication("w", stage(path, "w")), "synced")
    opened = java(version).open(
        path,
        settings(version, "sync"),
        batchQueueTopics=["inner"] if version == "5.5.0" else [],
        lookups=[put["physical_offset"] for put in acknowledged],
        append=40,
        halt=False,
    )
    check_kept(acknowledged, opened["holds"])
    assert opened["holds"]["maxPhysicalOffset"] == end
    assert len(opened["appended"]) == 40
    assert settle(path) == "rolled back"
    assert sum(numbers_in(path).values()) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_rocketmq_reads_a_store_that_was_damaged_and_repaired(
    java: Java, tmp_path: Path, version: Version
) -> None:
    """One record is damaged; the repair steps over it, and RocketMQ finds all the others."""
    path = tmp_path / "store"
    acknowledged = write_and_close(path, version, "sync")
    victim = acknowledged[len(acknowledged) // 2]
    segment = victim["physical_offset"] // SMALL["mappedFileSizeCommitLog"] * SMALL["mappedFileSizeCommitLog"]
    with open(path / "commitlog" / f"{segment:020d}", "r+b") as file:
        file.seek(victim["physical_offset"] - segment + 4)
        file.write(b"\0\0\0\0")
    report = repair_store(str(path), config=our_config(settings(version, "sync")))
    assert report.healthy
    others = [put for put in acknowledged if put["physical_offset"] != victim["physical_offset"]]
    opened = java(version).open(
        path,
        settings(version, "sync"),
        batchQueueTopics=["inner"] if version == "5.5.0" else [],
        lookups=[put["physical_offset"] for put in others],
        append=10,
        halt=False,
    )
    check_kept(others, opened["holds"])
    assert len(opened["appended"]) == 10
