"""Plays the client's side of a recorded conversation to a broker and compares the answers.

A request goes out when every answer that came before it in the recording has come here too. What the client
had learnt from earlier answers (places in the log, offsets of half messages) is replaced by what it would
have learnt here.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wire_frames import Frame, build, parse

from penstock.format.record import decode_record

PATIENCE = 45.0
FOREVER = str(2**63 - 1)
# Their queues are shared by everybody on a broker, so that offsets in them belong to the recording's broker.
SHARED = ("TBW102", "_REPLY_TOPIC", "%RETRY%G_nobody")
RECORDS = frozenset({11, 361, 12, 33})  # whose answers carry stored records
# Values that belong to one run.
OF_THE_RUN = frozenset(
    {
        "msgId",
        "transactionId",
        "indexLastUpdateTimestamp",
        "indexLastUpdatePhyoffset",
        "timestamp",
        "batchUniqId",
    }
)


@dataclass
class Line:
    """One recorded frame."""

    connection: int
    to: str
    frame: Frame


def load(path: Path) -> tuple[dict[str, Any], list[Line]]:
    with gzip.open(path, "rt") as file:
        about: dict[str, Any] = json.loads(next(file))
        given = (json.loads(line) for line in file)
        return about, [Line(g["conn"], g["to"], parse(base64.b64decode(g["frame"]))) for g in given]


def records(body: bytes) -> Iterator[Any]:
    place = 0
    while place < len(body):
        (size,) = struct.unpack_from(">I", body, place)
        yield decode_record(body[place : place + size])
        place += size


class Connection:
    """One connection to the broker under test: answers by opaque, and what the broker asked by itself."""

    def __init__(self) -> None:
        self.answers: dict[int, asyncio.Future[Frame]] = {}
        self.pushed: list[Frame] = []
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, address: tuple[str, int]) -> None:
        reader, self._writer = await asyncio.open_connection(*address)
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = await reader.readexactly(4)
                frame = parse(size + await reader.readexactly(int.from_bytes(size, "big")))
                if frame.is_answer:
                    self.answer(frame.opaque).set_result(frame)
                else:
                    self.pushed.append(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    def answer(self, opaque: int) -> asyncio.Future[Frame]:
        if opaque not in self.answers:
            self.answers[opaque] = asyncio.get_running_loop().create_future()
        return self.answers[opaque]

    def send(self, frame: Frame) -> None:
        assert self._writer is not None
        self._writer.write(build(frame))

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            await self._reading


class Replay:
    """One conversation against one broker; ``differences`` says where its answers were not the recorded."""

    def __init__(self, lines: list[Line], broker: tuple[str, int], namesrv: tuple[str, int]) -> None:
        self.lines = lines
        self.differences: list[str] = []
        self._addresses = {"broker": broker, "namesrv": namesrv}
        self._connections: dict[int, Connection] = defaultdict(Connection)
        self._roles = {line.connection: line.to for line in lines if line.to != "client"}
        self._requests: dict[tuple[int, int], Frame] = {}
        self._places: dict[int, int] = {}  # in the log, recorded → here
        self._halves: dict[str, str] = {}  # offsets in the half topic, recorded → here
        self._opened: set[int] = set()

    async def run(self) -> None:
        ends = self._last_use()
        for number, line in enumerate(self.lines):
            connection = self._connections[line.connection]
            if line.connection not in self._opened:
                self._opened.add(line.connection)
                await connection.open(self._addresses[self._roles[line.connection]])
            if line.to != "client":
                await self._send(connection, line)
            elif line.frame.is_answer:
                await self._compare(connection, line)
            elif line.frame.code == 39 or not line.frame.is_oneway:
                await self._wait_asked(connection, line)
            if ends[line.connection] == number:
                await connection.close()
        self._compare_pushes()

    async def _wait_asked(self, connection: Connection, line: Line) -> None:
        """The broker asks something by itself: about an open transaction, or to hand over a reply."""
        wanted = line.frame

        def asked() -> bool:
            return any(
                push.code == wanted.code and push.fields.get("msgId") == wanted.fields.get("msgId")
                for push in connection.pushed
            )

        for _ in range(int(PATIENCE * 50)):
            if asked():
                return
            await asyncio.sleep(0.02)
        self.differences.append(f"the broker did not ask {wanted.code} {wanted.fields}")

    def _last_use(self) -> dict[int, int]:
        return {line.connection: number for number, line in enumerate(self.lines)}

    async def _send(self, connection: Connection, line: Line) -> None:
        frame = line.frame
        if frame.is_answer:
            # The client's answer to something the broker asked: under the number it had here.
            asked = next((push for push in connection.pushed if not push.is_oneway), None)
            if asked is not None:
                connection.pushed.remove(asked)
                connection.pushed.append(Frame(asked.code, asked.opaque, 2, asked.fields))
                connection.send(Frame(**{**frame.__dict__, "opaque": asked.opaque}))
            return
        self._requests[line.connection, frame.opaque] = frame
        connection.send(self._learnt(connection, frame))

    def _learnt(self, connection: Connection, frame: Frame) -> Frame:
        fields = dict(frame.fields)
        if frame.code == 37:
            fields["tranStateTableOffset"] = self._half(connection, frame)
        for name in ("offset", "commitLogOffset"):
            if frame.code in (33, 36, 37) and name in fields:
                fields[name] = str(self._places.get(int(fields[name]), fields[name]))
        if frame.code == 12:
            fields.update(beginTimestamp="0", endTimestamp=FOREVER)
        return frame.with_fields(**fields)

    def _half(self, connection: Connection, frame: Frame) -> str:
        old = frame.fields["tranStateTableOffset"]
        if frame.fields.get("fromTransactionCheck") == "true":
            for push in connection.pushed:
                if push.code == 39 and push.fields.get("msgId") == frame.fields.get("msgId"):
                    self._places[int(frame.fields["commitLogOffset"])] = int(push.fields["commitLogOffset"])
                    return push.fields["tranStateTableOffset"]
        return self._halves.get(old, old)

    async def _compare(self, connection: Connection, line: Line) -> None:
        request = self._requests.get((line.connection, line.frame.opaque))
        if request is None or request.is_oneway:
            return
        name = f"{request.code} {request.fields.get('topic') or request.fields.get('b') or ''}"
        try:
            here = await asyncio.wait_for(asyncio.shield(connection.answer(line.frame.opaque)), PATIENCE)
        except TimeoutError:
            self.differences.append(f"{name}: no answer, recorded {line.frame.code} {line.frame.remark!r}")
            return
        there = line.frame
        self._learn(request, there, here)
        if _may_differ(request, there, here):
            return
        if here.code != there.code:
            self.differences.append(
                f"{name}: answered {here.code} {here.remark!r}, recorded {there.code} {there.remark!r}"
            )
            return
        # What Java says of its own exceptions is Java's.
        if _remark(here) != _remark(there) and not (_of_java(there) and here.remark):
            self.differences.append(f"{name}: remark {_remark(here)!r}, recorded {_remark(there)!r}")
        self._compare_fields(name, request, here, there)
        self._compare_bodies(name, request, here, there)

    def _learn(self, request: Frame, there: Frame, here: Frame) -> None:
        old, new = there.fields.get("msgId", ""), here.fields.get("msgId", "")
        for one, other in zip(old.split(","), new.split(","), strict=False):
            if len(one) in (32, 56) and len(other) in (32, 56):
                self._places[int(one[-16:], 16)] = int(other[-16:], 16)
        if request.code in (310, 10) and int(request.fields.get("f", request.fields.get("sysFlag", "0"))) & 4:
            self._halves[there.fields.get("queueOffset", "")] = here.fields.get("queueOffset", "")
        if request.code in RECORDS and there.code == here.code == 0:
            for theirs, ours in zip(records(there.body), records(here.body), strict=False):
                self._places[theirs.physical_offset] = ours.physical_offset

    def _compare_fields(self, name: str, request: Frame, here: Frame, there: Frame) -> None:
        missing = there.fields.keys() - here.fields.keys()
        if missing:
            self.differences.append(f"{name}: fields {sorted(missing)} missing from {here.fields}")
        elsewhere = _stored_elsewhere(request)
        for field, value in there.fields.items():
            if field in OF_THE_RUN or field in missing or (elsewhere and field == "queueOffset"):
                continue
            if here.fields[field] != value:
                self.differences.append(f"{name}: {field}={here.fields[field]!r}, recorded {value!r}")

    def _compare_bodies(self, name: str, request: Frame, here: Frame, there: Frame) -> None:
        if request.code in RECORDS:
            ours, theirs = ([_plain(r) for r in records(f.body)] for f in (here, there))
        else:
            ours, theirs = _body(here), _body(there)
        if ours != theirs:
            self.differences.append(f"{name}: body {ours}, recorded {theirs}")

    def _compare_pushes(self) -> None:
        for number, connection in self._connections.items():
            recorded = Counter(
                line.frame.code
                for line in self.lines
                if line.connection == number and line.to == "client" and not line.frame.is_answer
            )
            came = Counter(push.code for push in connection.pushed)
            if recorded.keys() != came.keys():
                self.differences.append(f"connection {number}: asked by itself {came}, recorded {recorded}")


def _of_java(frame: Frame) -> bool:
    return frame.remark.startswith(("java.", "com.alibaba.", "org.apache."))


def _stored_elsewhere(request: Frame) -> bool:
    """Half and delayed messages, and those of shared topics, get offsets in queues of the whole broker."""
    if request.code not in (310, 10, 320, 324, 325):
        return False
    topic = request.fields.get("b") or request.fields.get("topic") or ""
    half = int(request.fields.get("f") or request.fields.get("sysFlag") or "0") & 4
    delayed = "DELAY\x01" in (request.fields.get("i") or request.fields.get("properties") or "")
    return bool(half or delayed or any(word in topic for word in SHARED))


def _may_differ(request: Frame, there: Frame, here: Frame) -> bool:
    """Answers that depend on the moment, or that we give better on purpose."""
    topic = request.fields.get("topic", "")
    if there.code == 25 and here.code in (0, 19, 20):
        return True  # RocketMQ makes a client wait whose newest heartbeat was skipped; we serve it
    if request.code == 105 and topic.startswith("%RETRY%") and there.code == 17 and here.code == 0:
        return True  # here the group's topic is there a moment earlier
    # By time: the recorded times are not the times of this run.
    return request.code == 29 and here.code == there.code


def _remark(frame: Frame) -> str:
    remark = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", frame.remark.partition("\n")[0].strip())
    return "" if remark == "not set any response code" else remark


def _plain(record: Any) -> Any:
    own = {"UNIQ_KEY", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID", "TRAN_PREPARED_QUEUE_OFFSET"}
    own |= {"TRANSACTION_CHECK_TIMES"}  # how often it was asked about depends on when the scan came by
    properties = {name: value for name, value in record.properties.items() if name not in own}
    return record.topic, record.queue_id, record.queue_offset, record.body, record.reconsume_times, properties


def _body(frame: Frame) -> Any:
    """A JSON body without addresses and without the order of lists; other bodies as they are."""
    # Some servers write numbers as keys without quotes.
    quoted = re.sub(rb"([{,])(\d+):", rb'\1"\2":', frame.body)
    try:
        return _sorted(json.loads(quoted)) if quoted else None
    except ValueError:
        return frame.body


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _sorted(item) for name, item in value.items() if name not in ("brokerAddrs", "brokerAddr")
        }
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=str)
    return value
