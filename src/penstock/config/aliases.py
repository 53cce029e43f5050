"""RocketMQ's own key names, as they stand in a ``broker.conf``."""

from __future__ import annotations

from typing import Any

# Java's name -> ours. Units agree (milliseconds, hours, bytes, percent), so values carry over as they are.
ALIASES: dict[str, str] = {
    "flushDiskType": "flush_disk_type",
    "syncFlushTimeout": "sync_flush_timeout_ms",
    "readUnCommitted": "read_uncommitted",
    "storePathCommitLog": "store_path_commit_log",
    "readOnlyCommitLogStorePaths": "read_only_commit_log_store_paths",
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mapedFileSizeCommitLog": "mapped_file_size_commit_log",  # spelling of the 4.x versions
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "mapedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "enableConsumeQueueExt": "enable_consume_queue_ext",
    "mappedFileSizeConsumeQueueExt": "mapped_file_size_consume_queue_ext",
    "bitMapLengthConsumeQueueExt": "bit_map_length_consume_queue_ext",
    "mapperFileSizeBatchConsumeQueue": "mapper_file_size_batch_consume_queue",
    "mappedFileSizeTimerLog": "mapped_file_size_timer_log",
    "maxMessageSize": "max_message_size",
    "autoMessageVersionOnTopicLen": "auto_message_version_on_topic_len",
    "enabledAppendPropCRC": "enabled_append_prop_crc",
    "forceVerifyPropCRC": "force_verify_prop_crc",
    "checkCRCOnRecover": "check_crc_on_recover",
    "messageIndexEnable": "message_index_enable",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
    "maxMsgsNumBatch": "max_msgs_num_batch",
    "defaultQueryMaxNum": "default_query_max_num",
    "enableLmq": "enable_lmq",
    "enableMultiDispatch": "enable_multi_dispatch",
    "maxLmqConsumeQueueNum": "max_lmq_consume_queue_num",
    "maxTransferBytesOnMessageInMemory": "max_transfer_bytes_on_message_in_memory",
    "maxTransferCountOnMessageInMemory": "max_transfer_count_on_message_in_memory",
    "maxTransferBytesOnMessageInDisk": "max_transfer_bytes_on_message_in_disk",
    "maxTransferCountOnMessageInDisk": "max_transfer_count_on_message_in_disk",
    "accessMessageInMemoryMaxRatio": "access_message_in_memory_max_ratio",
    "maxFilterMessageSize": "max_filter_message_size",
    "diskFallRecorded": "disk_fall_recorded",
    "offsetCheckInSlave": "offset_check_in_slave",
    "deleteWhen": "delete_when",
    "fileReservedTime": "file_reserved_time_hours",
    "deleteFileBatchMax": "delete_file_batch_max",
    "diskMaxUsedSpaceRatio": "disk_max_used_space_ratio",
    "diskSpaceCleanForciblyRatio": "disk_space_clean_forcibly_ratio",
    "diskSpaceWarningLevelRatio": "disk_space_warning_level_ratio",
    "cleanFileForciblyEnable": "clean_file_forcibly_enable",
    "cleanResourceInterval": "clean_resource_interval_ms",
    "deleteCommitLogFilesInterval": "delete_commit_log_files_interval_ms",
    "deleteConsumeQueueFilesInterval": "delete_consume_queue_files_interval_ms",
    "destroyMapedFileIntervalForcibly": "destroy_mapped_file_interval_forcibly_ms",
    "redeleteHangedFileInterval": "redelete_hanged_file_interval_ms",
    "messageDelayLevel": "message_delay_level",
    "flushDelayOffsetInterval": "flush_delay_offset_interval_ms",
    "enableScheduleAsyncDeliver": "enable_schedule_async_deliver",
    "timerWheelEnable": "timer_wheel_enable",
    "timerPrecisionMs": "timer_precision_ms",
    "timerRollWindowSlot": "timer_roll_window_slot",
    "timerMaxDelaySec": "timer_max_delay_sec",
    "timerFlushIntervalMs": "timer_flush_interval_ms",
    "timerWheelSnapshotFlush": "timer_wheel_snapshot_flush",
    "timerWheelSnapshotIntervalMs": "timer_wheel_snapshot_interval_ms",
    "timerCongestNumEachSlot": "timer_congest_num_each_slot",
    "transactionTimeOut": "transaction_time_out_ms",
    "transactionCheckMax": "transaction_check_max",
    "transactionCheckInterval": "transaction_check_interval_ms",
    "transactionOpMsgMaxSize": "transaction_op_msg_max_size",
    "transactionOpBatchInterval": "transaction_op_batch_interval_ms",
    "flushConsumerOffsetInterval": "flush_consumer_offset_interval_ms",
    "flushIntervalCommitLog": "flush_interval_commit_log_ms",
    "flushCommitLogTimed": "flush_commit_log_timed",
    "flushCommitLogLeastPages": "flush_commit_log_least_pages",
    "flushCommitLogThoroughInterval": "flush_commit_log_thorough_interval_ms",
    "commitIntervalCommitLog": "commit_interval_commit_log_ms",
    "commitCommitLogLeastPages": "commit_commit_log_least_pages",
    "commitCommitLogThoroughInterval": "commit_commit_log_thorough_interval_ms",
    "flushIntervalConsumeQueue": "flush_interval_consume_queue_ms",
    "flushConsumeQueueLeastPages": "flush_consume_queue_least_pages",
    "flushConsumeQueueThoroughInterval": "flush_consume_queue_thorough_interval_ms",
    "transientStorePoolEnable": "transient_store_pool_enable",
    "transientStorePoolSize": "transient_store_pool_size",
    "fastFailIfNoBufferInStorePool": "fast_fail_if_no_buffer_in_store_pool",
    "warmMapedFileEnable": "warm_mapped_file_enable",
    "flushLeastPagesWhenWarmMapedFile": "flush_least_pages_when_warm_mapped_file",
    "osPageCacheBusyTimeOutMills": "os_page_cache_busy_timeout_ms",
}

_VALUES: dict[str, dict[str, str]] = {
    "flush_disk_type": {"SYNC_FLUSH": "sync", "ASYNC_FLUSH": "async"},
}


def field_of(key: str) -> str:
    """Our name of a key; a key that is no alias comes back as it is."""
    return ALIASES.get(key, key)


def translate_value(field: str, value: Any) -> Any:
    """RocketMQ's constants (``ASYNC_FLUSH``) in our words; anything else as it is."""
    return _VALUES.get(field, {}).get(value, value) if isinstance(value, str) else value
