"""Bytes made by the original encoder classes (store format, section 21)."""

from __future__ import annotations

import pytest

from penstock.format.batch import BatchBlock, decode_client_batch, encode_client_batch
from penstock.format.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from penstock.format.crc import crc32
from penstock.format.extunit import ExtOracle, ExtUnit
from penstock.format.indexfile import IndexHeader, IndexOracle
from penstock.format.javahash import java_hash, key_hash
from penstock.format.queueunit import PRE_BLANK_UNIT, QueueUnit, encode_queue_unit, tags_code
from penstock.format.record import (
    check_record,
    decode_record,
    encode_blank,
    encode_crc_property,
    encode_message,
    encode_record,
)
from penstock.message import Message, decode_message_id, encode_properties, parse_properties

V1 = bytes.fromhex(
    """
    00000087 DAA320A7 69C865ED 00000003 00000000 0000000000000007 0000000000000400 00000000
    0000018BCFE56800 C0A80001 0000D431 0000018BCFE5687B 0A000002 00002A9F 00000000 0000000000000000
    0000000E 48656C6C6F20526F636B65744D51 09 546F70696354657374
    0015 54414753 01 54616741 02 4B455953 01 6B31206B32 02
    """
)

V1_PROPERTY_CRC = bytes.fromhex(
    """
    00000075 DAA320A7 0CDC1683 00000000 00000000 0000000000000000 0000000000000000 00000000
    0000000000000001 01020304 00000005 0000000000000002 01020304 00000005 00000000 0000000000000000
    00000001 78 01 54 0018 410162 02 5F5F4352433332 23 01 34323035323939393831 02
    """
)


def test_a_v1_record_has_the_bytes_of_the_original() -> None:
    message = Message(
        "TopicTest",
        b"Hello RocketMQ",
        queue_id=3,
        properties={"TAGS": "TagA", "KEYS": "k1 k2"},
        born_timestamp=1700000000000,
        born_host="192.168.0.1:54321",
    )
    record = encode_message(
        message,
        queue_offset=7,
        physical_offset=1024,
        store_timestamp=1700000000123,
        store_host="10.0.0.2:10911",
    )
    assert record == V1
    assert check_record(record, 0, len(record)) == (135, True, "")


def test_a_v1_record_decodes_to_what_was_stored() -> None:
    fields = decode_record(V1)
    assert (fields.topic, fields.body, fields.queue_id) == ("TopicTest", b"Hello RocketMQ", 3)
    assert (fields.queue_offset, fields.physical_offset) == (7, 1024)
    assert (fields.born_host, fields.store_host) == ("192.168.0.1:54321", "10.0.0.2:10911")
    assert (fields.born_timestamp, fields.store_timestamp) == (1700000000000, 1700000000123)
    assert (fields.tags, fields.keys, fields.unique_key) == ("TagA", "k1 k2", None)
    assert fields.message_id == "0A00000200002A9F0000000000000400"
    assert decode_message_id(fields.message_id) == ("10.0.0.2:10911", 1024)


def test_the_property_crc_has_the_bytes_of_the_original() -> None:
    record = encode_record(
        "T",
        b"x",
        b"A\x01b",
        born_timestamp=1,
        born_host="1.2.3.4:5",
        store_host="1.2.3.4:5",
        queue_offset=0,
        physical_offset=0,
        store_timestamp=2,
        property_crc=True,
    )
    assert record == V1_PROPERTY_CRC
    assert check_record(record, 0, len(record), check_property_crc=True) == (117, True, "")
    assert encode_crc_property(1899925024) == record[-20:]
    assert encode_crc_property(1274296614)[9:19] == b"4166924721"


def test_a_long_retry_topic_makes_a_v2_record() -> None:
    topic = "%RETRY%" + "g" * 125
    record = encode_record(
        topic,
        b"x",
        born_timestamp=1,
        born_host="1.2.3.4:5",
        store_host="1.2.3.4:5",
        queue_offset=0,
        physical_offset=0,
        store_timestamp=2,
    )
    assert record[:8] == bytes.fromhex("000000E1 DAA320AB")
    assert record[88:] == b"x" + bytes.fromhex("0084") + topic.encode() + bytes.fromhex("0000")
    assert decode_record(record).topic == topic


def test_a_client_batch_block_has_the_bytes_of_the_original() -> None:
    block = BatchBlock(b"body", encode_properties({"WAIT": "true", "TAGS": "TagA"}))
    data = bytes.fromhex(
        "0000002E 00000000 00000000 00000000 00000004 626F6479 0014"
        "57414954 01 74727565 02 54414753 01 54616741 02"
    )
    assert encode_client_batch([block]) == data
    assert decode_client_batch(data * 2) == [block, block]


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"123456789", 1274296614), (b"hello", 907060870), (b"Hello RocketMQ", 1774740973), (b"", 0)],
)
def test_masked_crcs(data: bytes, value: int) -> None:
    assert crc32(data) == value


def test_an_index_file_has_the_bytes_of_the_original() -> None:
    index = IndexOracle(10, 8)
    assert index.put_key("T#k1", 100, 1700000000000)
    assert index.put_key("T#k1", 200, 1700000005500)
    assert index.put_key("polygenelubricants", 300, 1700000003000)
    assert index.put_key("T#k2", 400, 1700000009999)
    slots = {0: 3, 5: 2, 6: 4}
    expected = (
        bytes.fromhex("0000018BCFE56800 0000018BCFE58F0F 0000000000000064 0000000000000190 00000003 00000005")
        + b"".join(slots.get(i, 0).to_bytes(4, "big") for i in range(10))
        + bytes(20)
        + bytes.fromhex("0026BFB5 0000000000000064 00000000 00000000")
        + bytes.fromhex("0026BFB5 00000000000000C8 00000005 00000001")
        + bytes.fromhex("00000000 000000000000012C 00000003 00000000")
        + bytes.fromhex("0026BFB6 0000000000000190 00000009 00000000")
    ).ljust(240, b"\0")
    assert bytes(index.data) == expected
    assert index.header == IndexHeader(1700000000000, 1700000009999, 100, 400, 3, 5)
    assert index.select("T#k1", 64, 0, 1 << 62) == [200, 100]
    assert [index.put_key("T#k3", 500, 1700000010000) for _ in range(4)] == [True, True, True, False]


def test_an_extension_file_has_the_bytes_of_the_original() -> None:
    ext = ExtOracle(64)
    addresses = [
        ext.put(ExtUnit(7, 1000, b"\x01\x02")),
        ext.put(ExtUnit(8, 1001)),
        ext.put(ExtUnit(9, 1002, bytes(30))),
    ]
    assert [address % (1 << 64) for address in addresses] == [
        0x8000000000000000,
        0x8000000000000016,
        0x8000000000000040,
    ]
    first = bytes.fromhex(
        "0016 0000000000000007 00000000000003E8 0002 0102 0014 0000000000000008 00000000000003E9 0000 FFFF"
    )
    assert bytes(ext.files[0]) == first.ljust(64, b"\0")
    assert ext.get(addresses[1]) == ExtUnit(8, 1001)
    assert ext.get(addresses[2]) == ExtUnit(9, 1002, bytes(30))


def test_a_checkpoint_has_the_bytes_of_the_original() -> None:
    checkpoint = Checkpoint(10000, 9000, 3, 4, 5)
    data = encode_checkpoint(checkpoint)
    assert len(data) == 4096
    assert data[:40] == bytes.fromhex(
        "0000000000002710 0000000000002328 0000000000000003 0000000000000004 0000000000000005"
    )
    assert not any(data[40:])
    assert decode_checkpoint(data) == checkpoint
    assert (checkpoint.min_timestamp, checkpoint.min_timestamp_index) == (6000, 3)


def test_property_parsing_skips_what_has_no_name_or_no_value() -> None:
    assert parse_properties(b"A\x01\x02B\x011\x02\x01x\x02C\x012") == {"B": "1", "C": "2"}


def test_queue_units_have_the_bytes_of_the_original() -> None:
    code = tags_code("TopicTest", {"TAGS": "TagA"}, 0)
    assert encode_queue_unit(QueueUnit(1024, 135, code)) == bytes.fromhex(
        "0000000000000400 00000087 000000000027A807"
    )
    assert encode_queue_unit(PRE_BLANK_UNIT) == bytes.fromhex("0000000000000000 7FFFFFFF 0000000000000000")
    assert encode_blank(100) == bytes.fromhex("00000064 CBD43194")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("*", 42),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("TopicTest", -1902610879),
        ("TopicTest-0", 1247014820),
        ("TopicTest#KEY0", -1656969517),
        ("polygenelubricants", -2147483648),
        ("中文", 646394),
        ("\U0001f600", 1772899),
        ("T#k1", 2539445),
    ],
)
def test_hashes_are_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert key_hash(text) == (0 if value == -2147483648 else abs(value))
