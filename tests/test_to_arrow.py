"""A get can be had as Arrow columns: the same messages, with or without pyarrow around."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Message, open_store
from penstock._native.columns import COLUMNS

FIELDS = {
    "topic": "topic",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "msgId": "message_id",
    "keys": "keys",
    "tags": "tags",
    "body": "body",
    "bornHost": "born_host",
    "storeHost": "store_host",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "bodyCrc": "body_crc",
    "size": "size",
    "uniqueKey": "unique_key",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path, flush="async") as store:
        for number in range(20):
            store.put(
                Message(
                    "orders",
                    b"body %d" % number,
                    tags=f"tag{number % 3}" if number % 2 else None,
                    keys=f"k{number}",
                    properties={"größe": "ü" * number},
                    born_host="[::1]:5" if number % 4 else "1.2.3.4:5",
                )
            )
        store.flush()
    return tmp_path


@pytest.mark.parametrize("read_only", [False, True])
def test_columns_hold_what_the_messages_hold(path: Path, read_only: bool) -> None:
    with open_store(path, read_only=read_only) as store:
        result = store.get("orders", 0, 3, 8)
        assert [message.queue_offset for message in result] == list(range(3, 11))
        columns = pa.record_batch(result.to_arrow()).to_pydict()
        assert list(columns) == list(COLUMNS)
        for column, attribute in FIELDS.items():
            assert columns[column] == [getattr(message, attribute) for message in result], column
        assert [dict(pairs) for pairs in columns["properties"]] == [m.properties for m in result]
        for column in ("bornTimestamp", "storeTimestamp"):
            attribute = "born_timestamp" if column == "bornTimestamp" else "store_timestamp"
            milliseconds = [int(value.timestamp() * 1000 + 0.5) for value in columns[column]]
            assert milliseconds == [getattr(message, attribute) for message in result]


def test_columns_outlive_the_store(path: Path) -> None:
    with open_store(path) as store:
        batch = store.get("orders", 0, 0, 5).to_arrow(columns=["body", "queueOffset"])
    assert pa.record_batch(batch).to_pydict() == {
        "body": [b"body %d" % number for number in range(5)],
        "queueOffset": list(range(5)),
    }


def test_an_empty_answer_is_an_empty_batch(path: Path) -> None:
    with open_store(path) as store:
        batch = store.get("nobody", 0, 0).to_arrow()
    assert pa.record_batch(batch).num_rows == batch.num_rows == 0
    assert pa.table(batch).column_names == list(COLUMNS)


def test_pyarrow_is_not_needed_to_make_columns(path: Path) -> None:
    code = f"""
import sys
sys.modules["pyarrow"] = None
from penstock import open_store
with open_store({str(path)!r}) as store:
    batch = store.get("orders", 0, 0, 7).to_arrow()
    schema, array = batch.__arrow_c_array__()
    print(batch.num_rows, type(array).__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parent.parent / "src")},
    )
    assert done.stdout.split() == ["7", "PyCapsule"], done.stderr
