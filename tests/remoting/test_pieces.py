"""Frames come in pieces of any size: what was sent is what is handled, in its order, and nothing is kept."""

import asyncio
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.config.remoting import RemotingSettings
from penstock.remoting import Command, Connection
from penstock.remoting.command import ONEWAY_FLAG, encode
from penstock.remoting.connection import PartialBudget

_LARGE = 9000  # a body that is a view of what was received


def received(pieces: list[bytes]) -> tuple[list[tuple[int, bytes]], Connection, PartialBudget]:
    """What a connection makes of it: opaque and body of each request."""
    found: list[Command] = []
    budget = PartialBudget(1 << 30)

    async def feed() -> Connection:
        connection = Connection(
            {1: lambda _, command: found.append(command)}, RemotingSettings(), budget=budget
        )
        for piece in pieces:
            if not connection.closed:
                connection.data_received(piece)
        return connection

    connection = asyncio.run(feed())
    # Only now: a body must not change when later pieces come.
    return [(command.opaque, bytes(command.body)) for command in found], connection, budget


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[begin:end] for begin, end in pairwise(edges)]


_sizes = st.lists(st.one_of(st.integers(0, 50), st.integers(_LARGE, _LARGE + 20)), min_size=1, max_size=5)
_places = st.lists(st.integers(0, 1 << 16), max_size=12)


def frames(sizes: list[int]) -> list[bytes]:
    return [
        encode(Command(1, {"n": str(size)}, bytes([number]) * size, flag=ONEWAY_FLAG), number)
        for number, size in enumerate(sizes)
    ]


@given(_sizes, _places, st.integers(0, 100))
@example([_LARGE, 3], list(range(20)), 5)
def test_frames_in_any_pieces_are_all_handled(sizes: list[int], places: list[int], missing: int) -> None:
    made = frames([*sizes, 100])
    stream = b"".join(made)
    missing = missing % len(made[-1]) + 1
    found, connection, budget = received(cut(stream[:-missing], places))
    assert found == [(number, bytes([number]) * size) for number, size in enumerate(sizes)]
    assert not connection.closed
    assert connection.partial_size == budget.used == len(made[-1]) - missing
    assert (connection.partial_since > 0) == (connection.partial_size > 0)


@given(_sizes, _places)
def test_a_bad_length_is_found_behind_whole_frames_in_any_pieces(sizes: list[int], places: list[int]) -> None:
    stream = b"".join([*frames(sizes), b"\xff\xff\xff\xff", bytes(20)])
    found, connection, _ = received(cut(stream, places))
    assert [opaque for opaque, _ in found] == list(range(len(sizes)))
    assert connection.closed
