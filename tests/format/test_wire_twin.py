"""The compiled frame code does what the plain code does, and nothing it is given makes it do worse."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from penstock._native.wire import Command, take_frames
from penstock._native.wireout import encode, encode_head, plain_answers, pull_answer, send_answer
from penstock.format.malformed import Malformed
from penstock.format.wire import BINARY, JSON, LANGUAGES, Header, decode_header, split_frame
from penstock.format.wire import encode_head as plain_head
from penstock.remoting.command import tolerant_header

INTS = st.integers(-(2**31), 2**31 - 1)
SHORTS = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FIELDS = st.dictionaries(TEXT, TEXT.filter(bool), max_size=8)
MAX_FRAME, MAX_HEADER = 1 << 16, 1 << 12


@st.composite
def headers(draw: st.DrawFn, binary: bool) -> Header:
    number = SHORTS if binary else INTS
    remark = draw(st.none() | (TEXT.filter(bool) if binary else TEXT))
    language = draw(st.sampled_from(LANGUAGES) | (st.integers(14, 255) if binary else TEXT))
    return Header(draw(number), draw(FIELDS), draw(INTS), draw(INTS), draw(number), language, remark)


def command_of(header: Header, kind: int, body: bytes) -> Command:
    return Command(
        header.code,
        dict(header.fields),
        body,
        flag=header.flag,
        opaque=header.opaque,
        remark=header.remark,
        language=header.language,
        version=header.version,
        binary=kind == BINARY,
    )


def header_of(command: Command) -> Header:
    return Header(
        command.code,
        command.fields,
        command.flag,
        command.opaque,
        command.version,
        command.language,
        command.remark,
    )


def take(data: bytes) -> tuple[list[Command], int, str | None]:
    return take_frames(data, MAX_FRAME, MAX_HEADER, tolerant_header)


def plain_take(data: bytes) -> tuple[list[tuple[Header, bytes]], int, bool]:
    """The same by the plain functions; the last value tells whether something was wrong."""
    at, found = 0, []
    while True:
        try:
            parts = split_frame(data, at, MAX_FRAME, MAX_HEADER)
            if parts is None:
                return found, at, False
            kind, header, body = parts
            found.append((decode_header(kind, header), body))
        except Malformed:
            return found, at, True
        at += 8 + len(header) + len(body)


FRAMES = st.sampled_from([JSON, BINARY]).flatmap(
    lambda kind: st.tuples(st.just(kind), headers(kind == BINARY), st.binary(max_size=60))
)


@given(FRAMES)
def test_both_write_the_same_frame(frame: tuple[int, Header, bytes]) -> None:
    kind, header, body = frame
    command = command_of(header, kind, body)
    assert encode(command) == plain_head(kind, header, len(body)) + body
    assert encode_head(command, 77) == plain_head(kind, header, 77)
    assert encode(command, -5) == plain_head(kind, header._replace(opaque=-5), len(body)) + body


@given(st.lists(FRAMES, max_size=4), st.binary(max_size=12))
def test_both_split_and_read_a_stream_the_same(frames: list[tuple[int, Header, bytes]], rest: bytes) -> None:
    data = b"".join(plain_head(kind, header, len(body)) + body for kind, header, body in frames) + rest
    commands, end, wrong = take(data)
    plain, plain_end, plain_wrong = plain_take(data)
    assert [(header_of(each), bytes(each.body)) for each in commands] == plain
    assert (end, wrong is not None) == (plain_end, plain_wrong)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A frame or two with a few bytes changed, cut or inserted."""
    frames = draw(st.lists(FRAMES, min_size=1, max_size=2))
    data = bytearray(b"".join(plain_head(kind, header, len(body)) + body for kind, header, body in frames))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1)) if data else 0
        what = draw(st.sampled_from(["set", "cut", "insert"]))
        if what == "set" and data:
            data[at] = draw(st.integers(0, 255) | st.sampled_from(list(b'"\\{}[],:0-9nult \x01')))
        elif what == "cut":
            del data[at : at + draw(st.integers(1, 9))]
        else:
            data[at:at] = draw(st.binary(max_size=4))
    return bytes(data)


@given(damaged())
def test_both_agree_about_damaged_frames(data: bytes) -> None:
    commands, end, wrong = take(data)
    plain, plain_end, _ = plain_take(data)
    read = [(header_of(each), bytes(each.body)) for each in commands]
    # The plain reader is a little more tolerant of odd JSON (NaN, raw control characters, lone surrogates);
    # the compiled one may stop earlier, never read on or read something else.
    assert read == plain[: len(read)]
    assert end <= plain_end
    assert len(read) == len(plain) or wrong is not None


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    commands, end, wrong = take(data)
    assert 0 <= end <= len(data)
    assert wrong is not None or len(data) - end < MAX_FRAME
    assert all(isinstance(command, Command) for command in commands)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    ["code", "extFields", "flag", "language", "opaque", "remark", "version", "serializeTypeCurrentRPC", "odd"]
)


@given(st.dictionaries(MEMBERS, JSON_VALUES | st.dictionaries(TEXT, JSON_VALUES, max_size=3)))
@example({"code": 10**30})
@example({"code": 1, "extFields": {"a": 1, "b": True, "c": None, "d": 1.5, "e": {"x": [1]}}})
@example({"code": 1, "extFields": []})
@example({"code": True})
def test_headers_with_absurd_members_are_read_alike_or_refused(header: dict[str, object]) -> None:
    text = json.dumps(header, ensure_ascii=False, indent=1).encode()
    data = (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
    commands, _, wrong = take(data)
    plain, _, plain_wrong = plain_take(data)
    assert (wrong is not None) == plain_wrong
    if commands:
        got, want = header_of(commands[0]), plain[0][0]
        assert got._replace(fields={}) == want._replace(fields={})
        assert got.fields.keys() == want.fields.keys()
        # Two JSON writers may spell a number differently (1e16 and 1E+16).
        assert {k for k, v in got.fields.items() if want.fields[k] != v} <= {
            k
            for k, v in header.get("extFields", {}).items()
            if not isinstance(v, str)  # type: ignore[attr-defined]
        }


def test_header_nested_without_end_is_refused() -> None:
    text = b'{"code":1,"x":' + b"[" * 4000 + b"}"
    data = (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
    assert take(data)[2] is not None


def test_text_that_is_no_unicode_goes_out_as_question_marks() -> None:
    command = Command(1, {"a\ud800": "b\udfff"}, remark="\udc00")
    again = take(encode(command))[0][0]
    assert (again.fields, again.remark) == ({"a?": "b?"}, "?")


LONGS = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.tuples(LONGS, LONGS, LONGS, LONGS)


@given(
    INTS,
    st.booleans(),
    SHORTS,
    st.none() | TEXT.filter(bool),
    st.tuples(LONGS, LONGS, LONGS, LONGS),
    INTS,
    INTS,
)
def test_pull_answer_is_the_general_answer(
    opaque: int,
    binary: bool,
    code: int,
    remark: str | None,
    offsets: tuple[int, int, int, int],
    topic_flag: int,
    group_flag: int,
) -> None:
    next_offset, low, high, broker = offsets
    fields = {
        "groupSysFlag": str(group_flag),
        "maxOffset": str(high),
        "minOffset": str(low),
        "nextBeginOffset": str(next_offset),
        "suggestWhichBrokerId": str(broker),
        "topicSysFlag": str(topic_flag),
    }
    general = Command(code, fields, flag=1, opaque=opaque, remark=remark, binary=binary)
    made = pull_answer(
        opaque, binary, code, remark, next_offset, low, high, broker, topic_flag, group_flag, 99
    )
    assert made == encode_head(general, 99)


@given(INTS, st.booleans(), SHORTS, st.none() | TEXT.filter(bool), TEXT, INTS, LONGS, st.none() | TEXT)
def test_send_answer_is_the_general_answer(
    opaque: int,
    binary: bool,
    code: int,
    remark: str | None,
    message_id: str,
    queue: int,
    offset: int,
    transaction: str | None,
) -> None:
    fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": message_id}
    fields |= {"queueId": str(queue), "queueOffset": str(offset)}
    if transaction is not None:
        fields["transactionId"] = transaction
    general = Command(code, fields, flag=1, opaque=opaque, remark=remark, binary=binary)
    made = send_answer(
        opaque, binary, code, remark, "DefaultRegion", True, message_id, queue, offset, transaction
    )
    assert made == encode(general)


@given(st.lists(st.tuples(INTS, st.booleans(), st.booleans()), max_size=40))
def test_plain_answers_are_the_general_answers_of_all_that_want_one(
    requests: list[tuple[int, bool, bool]],
) -> None:
    made = [
        Command(200051, {"a": "b"}, flag=2 if oneway else 0, opaque=opaque, binary=binary)
        for opaque, binary, oneway in requests
    ]
    general = [encode(request.answer(0)) for request in made if not request.is_oneway]
    assert plain_answers(made) == b"".join(general)
