"""Settings: one precedence rule, an origin for each value, an error that names key and source."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from penstock.config import StoreConfig, load_config, parse_delay_levels
from penstock.config.aliases import ALIASES
from penstock.config.properties import parse_properties
from penstock.config.schema import TYPES, group_of
from penstock.errors import ConfigError

BROKER_CONF = """\
# Licensed to nobody
brokerClusterName = DefaultCluster
brokerName=broker-a
deleteWhen = 04
fileReservedTime = 48
flushDiskType = ASYNC_FLUSH
mappedFileSizeCommitLog: 67108864
messageDelayLevel=1s 5s \\
                  10s
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_are_rocketmqs_but_for_the_flush() -> None:
    config, origins = load_config(env={})
    assert config == StoreConfig()
    assert config.flush_disk_type == "sync"
    assert config.mapped_file_size_commit_log == 1_073_741_824
    assert config.file_reserved_time_hours == 72
    assert set(origins.values()) == {"default"}


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(
        tmp_path / "penstock.toml",
        "delete_file_batch_max = 1\nmax_msgs_num_batch = 1\ndefault_query_max_num = 1\n",
    )
    env = {"PENSTOCK_MAX_MSGS_NUM_BATCH": "2", "PENSTOCK_DEFAULT_QUERY_MAX_NUM": "2"}
    config, origins = load_config(file, env, {"default_query_max_num": 3, "max_hash_slot_num": None})
    assert (config.delete_file_batch_max, config.max_msgs_num_batch, config.default_query_max_num) == (
        1,
        2,
        3,
    )
    assert origins["delete_file_batch_max"] == f"file {file}"
    assert origins["max_msgs_num_batch"] == "environment PENSTOCK_MAX_MSGS_NUM_BATCH"
    assert origins["default_query_max_num"] == "flag default_query_max_num"
    assert origins["max_hash_slot_num"] == "default"


def test_broker_conf_of_rocketmq_is_understood(tmp_path: Path) -> None:
    file = write(tmp_path / "broker.conf", BROKER_CONF)
    config, origins = load_config(file, env={})
    assert config.flush_disk_type == "async"
    assert config.file_reserved_time_hours == 48
    assert config.mapped_file_size_commit_log == 64 << 20
    assert config.delay_levels_ms == (1000, 5000, 10_000)
    assert origins["flush_disk_type"] == f"file {file}"


def test_config_file_can_be_named_in_the_environment(tmp_path: Path) -> None:
    file = write(
        tmp_path / "c.toml", '[behaviour]\nflushDiskType = "async"\n[performance]\nmax_open_files = 64\n'
    )
    config, origins = load_config(env={"PENSTOCK_CONFIG": str(file), "PENSTOCK_SETUP": "yes"})
    assert (config.flush_disk_type, config.max_open_files) == ("async", 64)
    assert origins["max_open_files"] == f"file {file} [performance]"


def test_every_alias_names_a_setting_and_every_shared_setting_has_one() -> None:
    assert set(ALIASES.values()) <= set(TYPES)
    ours_alone = {"generate_unique_key", "store_host", "check_dup_info", "max_open_files"}
    assert set(TYPES) - set(ALIASES.values()) == ours_alone


def test_every_setting_is_documented_by_a_group() -> None:
    assert {group_of(field.name) for field in dataclasses.fields(StoreConfig)} == {"behaviour", "performance"}


@pytest.mark.parametrize(
    ("flags", "key", "said"),
    [
        ({"flush_disk_type": "sometimes"}, "flush_disk_type", "one of sync, async"),
        ({"fileReservedTime": "three"}, "file_reserved_time_hours", "whole number"),
        ({"max_message_size": True}, "max_message_size", "whole number"),
        ({"max_message_size": 0}, "max_message_size", "between 1 and"),
        ({"disk_max_used_space_ratio": 99}, "disk_max_used_space_ratio", "between 10 and 95"),
        ({"message_index_enable": "perhaps"}, "message_index_enable", "true or false"),
        ({"message_delay_level": "1s 5x"}, "message_delay_level", "'5x' is no delay"),
        ({"delete_when": "25"}, "delete_when", "hours of the day"),
        ({"store_host": "localhost"}, "store_host", "address and a port"),
        ({"store_host": "127.0.0.1:99999"}, "store_host", "65535"),
        (
            {"mapped_file_size_comit_log": 1},
            "mapped_file_size_comit_log",
            "did you mean mapped_file_size_commit_log",
        ),
        ({"flushDiskType": "sync", "flush_disk_type": "sync"}, "flush_disk_type", "one setting"),
    ],
)
def test_wrong_value_is_refused_with_its_key_and_source(flags: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(env={}, flags=flags)
    assert caught.value.key == key
    assert caught.value.source is not None and caught.value.source.startswith("flag ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "[performance]\nflush_disk_type = 'sync'\n", "belongs in [behaviour]"),
        ("a.toml", "[elsewhere]\nx = 1\n", "no such setting"),
        ("a.toml", "flush_disk_type = \n", "not TOML"),
        ("a.toml", "max_open_files = 64\n[performance]\nmax_open_files = 64\n", "set twice"),
        ("a.toml", "a = " + "[" * 5000, "not TOML"),
        ("a.conf", "deleteWhen=\\uZZ", "malformed"),
        ("a.conf", "maxMessageSize=4e6", "whole number"),
    ],
)
def test_wrong_file_is_refused_by_name(tmp_path: Path, name: str, text: str, said: str) -> None:
    file = write(tmp_path / name, text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, env={})
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_missing_binary_and_huge_files_are_refused_by_name(tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary.toml", tmp_path / "huge.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with huge.open("wb") as stream:
        stream.truncate(1 << 40)
    for file in (tmp_path / "absent.toml", binary, huge):
        with pytest.raises(ConfigError, match=file.name):
            load_config(file, env={})


def test_values_may_be_written_as_people_write_them() -> None:
    env = {
        "PENSTOCK_MAPPED_FILE_SIZE_COMMIT_LOG": "64MiB",
        "PENSTOCK_MAX_INDEX_NUM": "1_000",
        "PENSTOCK_ENABLE_LMQ": "Yes",
        "PENSTOCK_TRANSIENT_STORE_POOL_ENABLE": "0",
    }
    config, _ = load_config(env=env)
    assert config.mapped_file_size_commit_log == 64 << 20
    assert config.max_index_num == 1000
    assert config.enable_lmq is True
    assert config.transient_store_pool_enable is False


def test_sizes_and_precision_are_normalised_as_rocketmq_does() -> None:
    assert StoreConfig(mapped_file_size_consume_queue=6001).mapped_file_size_consume_queue == 6020
    given = [1, 150, 200, 499, 700, 5000]
    assert [StoreConfig(timer_precision_ms=ms).timer_precision_ms for ms in given] == [
        100,
        100,
        200,
        200,
        500,
        1000,
    ]


def test_config_made_in_code_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="from code"):
        StoreConfig(max_message_size=-1)
    with pytest.raises(ConfigError, match="flush_disk_type"):
        StoreConfig().replace(flush_disk_type="ASYNC_FLUSH")
    assert StoreConfig().replace(delete_when="02;16").delete_hours == {2, 16}


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        StoreConfig().max_message_size = 1  # type: ignore[misc]


def test_delay_levels_are_in_milliseconds() -> None:
    assert parse_delay_levels("1s 2m 3h 4d") == (1000, 120_000, 10_800_000, 345_600_000)
    with pytest.raises(ValueError, match="at least one"):
        parse_delay_levels(" ")
    with pytest.raises(ValueError, match="'s'"):
        parse_delay_levels("1s s")


def test_properties_are_read_as_java_does() -> None:
    text = "! c\n a = b \nk\\ 1:v\\u00e9\\t|\r\nempty\n\nlong=one,\\\n   two\\\\\nspaced value here\nlast=x\\"
    assert parse_properties(text) == {
        "a": "b ",
        "k 1": "vé\t|",
        "empty": "",
        "long": "one,two\\",
        "spaced": "value here",
        "last": "x",
    }
