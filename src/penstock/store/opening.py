"""Opening a store directory: one owner, recovery first, then the threads."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.config import StoreConfig
from penstock.errors import ConfigError, NotAStore
from penstock.files.disk import DiskStorage
from penstock.files.failure import store_error
from penstock.files.storage import Storage
from penstock.store.checkpoint import StoreCheckpoint
from penstock.store.cleaning import CleanService
from penstock.store.commitlog import CommitLog
from penstock.store.consumeroffset import consumer_offsets
from penstock.store.dispatcher import Dispatcher
from penstock.store.indexservice import IndexService
from penstock.store.logfolders import log_folders, refuse_foreign_log
from penstock.store.messagestore import MessageStore
from penstock.store.queuetable import QueueTable
from penstock.store.recovery import Recovery, RecoveryReport
from penstock.store.sizes import detect, is_store
from penstock.store.topictable import TopicTable
from penstock.store.upkeep import Parts


def configured(config: StoreConfig | None, flush: str | None) -> StoreConfig:
    """The settings to open with: ``flush`` wins over ``config``."""
    settings = config if config is not None else StoreConfig()
    if flush is None:
        return settings
    if flush not in ("sync", "async"):
        raise ConfigError(f"flush is 'sync' or 'async', not {flush!r}")
    return settings.replace(flush_disk_type=flush)


def open_writable(
    path: str | os.PathLike[str],
    *,
    flush: str | None = None,
    config: StoreConfig | None = None,
    storage: Storage | None = None,
    clock: Clock | None = None,
    background: bool = True,
    rebuild: bool = False,
    create: bool = True,
) -> MessageStore:
    """Own a store directory. See ``open_store``; ``rebuild`` makes queues and index anew from the log."""
    root = str(Path(path).absolute()) if storage is None else os.fspath(path)
    disk: Storage = storage if storage is not None else DiskStorage()
    if not create and not disk.exists(root):
        raise NotAStore("there is no such directory", file=root)
    settings = detect(disk, root, configured(config, flush))
    try:
        disk.makedirs(root)
    except OSError as error:
        raise store_error(error, "making the store directory") from error
    lock = disk.lock(str(PurePath(root) / "lock"))
    try:
        return _open_locked(
            disk, root, settings, clock or SystemClock(), lock, background=background, rebuild=rebuild
        )
    except BaseException:
        lock.release()
        raise


def _open_locked(
    storage: Storage,
    root: str,
    config: StoreConfig,
    clock: Clock,
    lock: Any,
    *,
    background: bool,
    rebuild: bool,
) -> MessageStore:
    abort = str(PurePath(root) / "abort")
    folders = log_folders(storage, root, config)
    folders.require_present(storage)
    if not is_store(storage, root, owned=True):
        refuse_foreign_log(storage, folders)
    folders.remember(storage)
    queues = QueueTable(storage, root, config)
    commit_log = CommitLog(storage, folders, config, clock, queues.native, background=background)
    index = (
        IndexService(storage, str(PurePath(root) / "index"), config, clock)
        if config.message_index_enable
        else None
    )
    checkpoint = StoreCheckpoint(storage, root)
    report_faults: list[Any] = []
    dispatcher = Dispatcher(commit_log, queues, index, on_fault=report_faults.append)
    offsets = consumer_offsets(storage, root, light=config.enable_lmq, clock=clock)
    topics = TopicTable(storage, str(PurePath(root) / "config" / "topics.json"), clock)
    try:
        offsets.load()
        topics.load()
        queues.batch_topics |= topics.with_attribute("queue.type", "BatchCQ")
        recovery = Recovery(
            root, commit_log, queues, index, checkpoint, dispatcher, clean=not storage.exists(abort)
        )
        report: RecoveryReport = recovery.run(rebuild=rebuild)
        report.faults += report_faults
        offsets.clamp(lambda topic, queue_id: _bounds(queues, topic, queue_id))
        storage.create_file(abort, str(os.getpid()).encode())
        storage.sync_dir(root)
        parts = Parts(
            root,
            commit_log,
            queues,
            index,
            checkpoint,
            dispatcher,
            offsets,
            CleanService(commit_log, queues, index, dispatcher, config, clock),
            topics,
        )
        return MessageStore(parts, config, report, lock, background=background)
    except OSError as error:
        _let_go(commit_log, queues, index)
        raise store_error(error, "opening the store") from error
    except BaseException:
        _let_go(commit_log, queues, index)
        raise


def _bounds(queues: QueueTable, topic: str, queue_id: int) -> tuple[int, int] | None:
    queue = queues.find(topic, queue_id)
    return (queue.min_offset, queue.max_offset) if queue is not None else None


def _let_go(commit_log: CommitLog, queues: QueueTable, index: IndexService | None) -> None:
    commit_log.shutdown()
    queues.close()
    if index is not None:
        index.close()
