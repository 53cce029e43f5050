"""Replays conversations that pop. Handles are those the client would have got here; what comes back may come
at another poll than it did in the recording, but it comes, and nothing else does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from typing import Any

from wire_frames import Frame
from wire_replay import PATIENCE, Connection, Line, Replay, records

POP, ACK, PEEK, CHANGE, NOTIFICATION, POLLING_INFO, BATCH_ACK = (
    200050, 200051, 200052, 200053, 200054, 200055, 200151,
)  # fmt: skip
OURS = frozenset({POP, ACK, PEEK, CHANGE, NOTIFICATION, POLLING_INFO, BATCH_ACK})
OF_THE_RUN = frozenset({"popTime", "reviveQid"})
SPEED = 8
"""The broker's clock runs so much faster than the recording's, so that invisible times are soon over."""
LONGEST = 0.05
"""Seconds between two looks at the clock that count."""


class FastClock:
    """The time of day in a hurry. It stands still while nobody asks for long: whoever was kept from running
    must not find that invisible times have passed meanwhile.
    """

    def __init__(self) -> None:
        self._now = self._asked = time.time()
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        with self._lock:
            asked = time.time()
            self._now += min(max(asked - self._asked, 0.0), LONGEST) * SPEED
            self._asked = asked
            return int(self._now * 1000)

    def monotonic(self) -> float:
        return time.monotonic()


Key = tuple[str, str, str, str]
"""Group, kind of topic, queue and offset of a popped message."""


class PopReplay(Replay):
    """One conversation; ``popped`` is what was given out, there and here."""

    def __init__(
        self, lines: list[Line], broker: tuple[str, int], namesrv: tuple[str, int], clock: FastClock
    ) -> None:
        super().__init__(lines, broker, namesrv)
        self._clock = clock
        self._handles: dict[Key, list[str]] = {}
        self.popped: dict[str, set[Any]] = {"there": set(), "here": set()}

    async def run(self) -> None:
        await super().run()
        if self.popped["there"] != self.popped["here"]:
            other = self.popped["here"] ^ self.popped["there"]
            self.differences.append(f"popped on one side only: {other}")

    # -- what the client would say here -------------------------------------------------------------------

    def _learnt(self, connection: Connection, frame: Frame) -> Frame:
        if frame.code == 11:
            hold = int(frame.fields["suspendTimeoutMillis"]) // SPEED
            return super()._learnt(connection, frame).with_fields(suspendTimeoutMillis=str(hold))
        if frame.code not in OURS:
            return super()._learnt(connection, frame)
        fields = dict(frame.fields)
        if int(fields.get("bornTime", "0")) > 1_000_000:
            fields["bornTime"] = str(self._clock.now_ms())
        if "pollTime" in fields:
            fields["pollTime"] = str(int(fields["pollTime"]) // SPEED)
        if "extraInfo" in fields:
            fields["extraInfo"] = self._handle(fields["consumerGroup"], fields["extraInfo"])
        frame = frame.with_fields(**fields)
        return dataclasses.replace(frame, body=self._batch(frame.body)) if frame.code == BATCH_ACK else frame

    def _handle(self, group: str, recorded: str) -> str:
        words = recorded.split(" ")
        if len(words) != 8:
            return recorded
        return " ".join(self._handles.get((group, words[4], words[6], words[7]), words))

    def _batch(self, body: bytes) -> bytes:
        asked = json.loads(body)
        for each in asked["acks"]:
            bit = next(number for number in range(32) if _bits(each["b"]) >> number & 1)
            words = self._handles[each["c"], each["r"], str(each["q"]), str(each["so"] + bit)]
            each.update(so=int(words[0]), pt=int(words[1]), it=int(words[2]), rq=int(words[3]))
        return json.dumps(asked).encode()

    # -- what it hears ------------------------------------------------------------------------------------

    async def _compare(self, connection: Connection, line: Line) -> None:
        request = self._requests.get((line.connection, line.frame.opaque))
        if request is None or request.code not in OURS:
            await super()._compare(connection, line)
            return
        there = line.frame
        answer = asyncio.shield(connection.answer(there.opaque))
        here = await asyncio.wait_for(answer, PATIENCE)
        name = f"{request.code} {there.opaque}"
        self._keep("there", request, there)
        self._keep("here", request, here)
        if request.code == POP and {here.code, there.code} == {0, 210}:
            if here.code == 210:
                await self._poll(connection, request)
            return  # it came, or comes, at another poll
        if here.code != there.code:
            self.differences.append(
                f"{name}: {here.code} {here.remark!r}, recorded {there.code} {there.remark!r}"
            )
            return
        ours, theirs = _remark(here), _remark(there)
        # Java's own words are Java's; and we say what is wrong with a filter.
        own = theirs.startswith("java.") or (here.code == 23 and ours.startswith(theirs))
        if ours != theirs and not (own and ours):
            self.differences.append(f"{name}: remark {ours!r}, recorded {theirs!r}")
        found = {key: value for key, value in _fields(request, here).items() if key not in OF_THE_RUN}
        wanted = {key: value for key, value in _fields(request, there).items() if key not in OF_THE_RUN}
        if found != wanted or here.fields.keys() != there.fields.keys():
            self.differences.append(f"{name}: fields {here.fields}, recorded {there.fields}")
        if request.code == PEEK and [_plain(r) for r in records(here.body)] != [
            _plain(r) for r in records(there.body)
        ]:
            self.differences.append(f"{name}: other messages")

    async def _poll(self, connection: Connection, request: Frame) -> None:
        """Pop until something comes, as the client would."""
        for number in range(100):
            opaque = 1_000_000 + request.opaque * 100 + number
            connection.send(dataclasses.replace(self._learnt(connection, request), opaque=opaque))
            here = await asyncio.wait_for(asyncio.shield(connection.answer(opaque)), PATIENCE)
            if here.code == 0:
                self._keep("here", request, here)
                return

    def _keep(self, side: str, request: Frame, answer: Frame) -> None:
        if request.code != POP or answer.code != 0:
            return
        fields, group = answer.fields, request.fields["consumerGroup"]
        self.popped[side] |= {(group, *_plain(record)) for record in records(answer.body)}
        if side == "there":
            return
        starts = {}
        for each in fields["startOffsetInfo"].split(";"):
            kind, queue, start = each.split(" ")
            starts[kind, queue] = start
        for each in fields["msgOffsetInfo"].split(";"):
            kind, queue, offsets = each.split(" ")
            for offset in offsets.split(","):
                self._handles[group, kind, queue, offset] = [
                    *(starts[kind, queue], fields["popTime"], fields["invisibleTime"], fields["reviveQid"]),
                    *(kind, "broker-a", queue, offset),
                ]


def _bits(text: str) -> int:
    import base64

    return int.from_bytes(base64.b64decode(text), "little")


def _remark(frame: Frame) -> str:
    # The address of the client belongs to the run.
    return frame.remark.partition("consumer:[")[0]


def _fields(request: Frame, answer: Frame) -> dict[str, Any]:
    """Queues come in any order, for the first one is drawn."""
    fields: dict[str, Any] = dict(answer.fields)
    for name in ("startOffsetInfo", "msgOffsetInfo"):
        if name in fields:
            fields[name] = sorted(fields[name].split(";"))
    return fields


def _plain(record: Any) -> Any:
    own = {"POP_CK", "1ST_POP_TIME"}
    properties = tuple(sorted((name, value) for name, value in record.properties.items() if name not in own))
    # Of two that came back in the same moment either may be the first.
    offset = record.queue_offset if record.reconsume_times == 0 else None
    return record.topic, record.queue_id, offset, record.body, record.reconsume_times, properties
