"""Frames of real clients and servers are read right and written back the same."""

import json

import pytest

from golden_wire import conversation, conversations
from penstock.remoting.command import Command, decode, encode


@pytest.mark.parametrize("name", conversations())
def test_recorded_frames_come_back_the_same(name: str) -> None:
    _, frames = conversation(name)
    assert frames
    for recorded in frames:
        command = decode(recorded.frame)
        again = encode(command)
        assert decode(again) == command
        header_size = int.from_bytes(recorded.frame[5:8], "big")
        header = recorded.frame[8 : 8 + header_size]
        assert bytes(command.body) == recorded.frame[8 + header_size :]
        if command.binary or (command.language == "JAVA" and b'"extFields"' in header):
            assert again == recorded.frame
        elif not command.binary:
            ours = json.loads(again[8 : 8 + int.from_bytes(again[5:8], "big")])
            theirs = json.loads(header)
            assert ours == {"extFields": {}, "serializeTypeCurrentRPC": "JSON", **theirs}


def test_worked_example_of_the_protocol() -> None:
    request = Command(105, {"topic": "T"}, language="JAVA", version=479)
    text = (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert encode(request) == bytes.fromhex("0000007f0000007b") + text
    request.binary = True
    assert encode(request).hex() == (
        "000000250100002100690001df0000000000000000000000000000000c0005746f7069630000000154"
    )
