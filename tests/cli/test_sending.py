"""``penstock send`` and ``penstock tail``: what goes in comes out."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.store.opening import open_writable

from .conftest import SMALL, Penstock


def test_a_sent_message_is_tailed(penstock: Penstock, tmp_path: Path) -> None:
    sent = penstock(
        "send", "--store", tmp_path / "s", "orders", "hello", "--tags", "a", "--keys", "k1 k2", "--queue", 3,
        "--property", "colour=red", "--json",
    ).json  # fmt: skip
    assert (sent["status"], sent["queue_id"], sent["queue_offset"]) == ("PUT_OK", 3, 0)
    (line,) = penstock("tail", "--store", tmp_path / "s", "orders", "--no-follow", "--json").lines
    assert base64.b64decode(line["body"]) == b"hello"
    assert line["message_id"] == sent["message_id"]
    assert line["properties"] == {
        "TAGS": "a",
        "KEYS": "k1 k2",
        "colour": "red",
        "UNIQ_KEY": line["unique_key"],
    }


def test_each_line_of_the_input_is_a_message(tmp_path: Path) -> None:
    lines = [b"one", b"", b"three \xff", b"last without an end"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "send", "--store", str(tmp_path / "s"), "t", "-", "--json"],
        input=b"\n".join(lines),
        capture_output=True,
        check=True,
    )
    assert done.stdout.count(b"PUT_OK") == 4
    with open_writable(tmp_path / "s", config=SMALL) as store:
        assert [message.body for message in store.get("t", 0, 0).messages] == lines


def test_a_refused_message_is_an_error(penstock: Penstock, tmp_path: Path) -> None:
    outcome = penstock("send", "--store", tmp_path / "s", "bad/../topic", "hello")
    assert outcome.code == 2
    assert "MESSAGE_ILLEGAL" in outcome.err


def test_sending_to_a_directory_of_other_things_is_refused(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    outcome = penstock("send", "--store", tmp_path, "t", "hello", "--json")
    assert outcome.code == 2
    assert outcome.error["error"] == "NotAStore"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_tail_stops_at_its_count_and_begins_where_told(penstock: Penstock, small_store: Path) -> None:
    first = penstock("tail", "--store", small_store, "orders", "--queue", 0, "--count", 2, "--json").lines
    assert [line["queue_offset"] for line in first] == [0, 1]
    later = penstock(
        "tail", "--store", small_store, "orders", "--queue", 0, "--from", 50, "--count", 3, "--json"
    ).lines
    assert [line["queue_offset"] for line in later] == [50, 51, 52]
    assert penstock("tail", "--store", small_store, "orders", "--from", "latest", "--no-follow").out == ""


def test_a_group_goes_on_where_it_was(penstock: Penstock, small_store: Path) -> None:
    seen = []
    for _ in range(3):
        lines = penstock(
            "tail", "--store", small_store, "orders", "--group", "g", "--count", 40, "--no-follow", "--json"
        ).lines
        seen += [(line["queue_id"], line["queue_offset"]) for line in lines]
    assert len(seen) == len(set(seen)) == 120


def test_tail_sees_what_another_process_writes(small_store: Path) -> None:
    with open_writable(small_store, config=SMALL) as store:
        tail = ["tail", "--store", str(small_store), "orders", "--from", "latest", "--count", "2", "--json"]
        follower = subprocess.Popen(
            [sys.executable, "-m", "penstock", *tail],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert follower.stdout is not None
        from penstock import Message

        # The follower says nothing before it sees something new: put until it does.
        number = 0
        while follower.poll() is None:
            store.put(Message("orders", b"new %d" % number))
            store.wait_visible()
            number += 1
        out = follower.stdout.read()
    assert follower.returncode == 0
    assert out.count(b"\n") == 2


@pytest.mark.parametrize("form", ["json", "text"])
def test_logs_go_to_stderr(form: str, penstock: Penstock, tmp_path: Path) -> None:
    outcome = penstock(
        "--log-level", "info", "--log-format", form, "send", "--store", tmp_path / "s", "t", "hello", "--json"
    )
    assert outcome.json["status"] == "PUT_OK"
    assert "opened" in outcome.err
    if form == "json":
        assert outcome.error["level"] == "info"


def test_config_show_names_the_origin_of_each_value(
    penstock: Penstock, small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushDiskType=ASYNC_FLUSH\nmaxMessageSize=65536\n")
    monkeypatch.setenv("PENSTOCK_MAX_MESSAGE_SIZE", "131072")
    rows = penstock("config", "show", "--file", file, "--store", small_store, "--json").json
    found = {row["name"]: (row["value"], row["origin"]) for row in rows}
    assert found["flush_disk_type"][0] == "async" and str(file) in found["flush_disk_type"][1]
    assert found["max_message_size"][0] == 131072 and "environment" in found["max_message_size"][1]
    assert found["mapped_file_size_commit_log"] == (64 << 10, f"files of {small_store}")
    assert found["delete_when"] == ("04", "default")


def test_input_is_not_needed_for_a_plain_body(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert penstock("send", "--store", tmp_path / "s", "t", "hello").code == 0
