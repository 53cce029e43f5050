"""What becomes of each answer that a broker can give to a pull."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from penstock.client.loopthread import LoopThread
from penstock.client.pulling import PullAnswer, PullStatus
from penstock.client.queue import MessageQueue
from penstock.errors import RemotingError
from penstock.spark.network import pulls
from penstock.spark.network.brokers import Brokers
from penstock.spark.network.pulls import Pulls
from penstock.spark.ranges import QueueRange

Asked = Callable[[int], PullAnswer]


class Scripted:
    """Answers pulls as a function says. Offsets below 3 never had a message, the others had."""

    def __init__(self, answer: Asked) -> None:
        self.thread = LoopThread("scripted")
        self.loop = self.thread.loop
        self.answer = answer

    async def pull(self, queue: MessageQueue, offset: int, most: int, tags: str) -> PullAnswer:
        return self.answer(offset)

    async def units(self, queue: MessageQueue, offset: int, count: int) -> list[tuple[int, int, int]]:
        return [(number, number * 100, 100 if number >= 3 else 0) for number in range(offset, offset + count)]


def records(first: int) -> bytes:
    return bytes(20) + first.to_bytes(8, "big") + bytes(72)


def found(first: int, following: int) -> PullAnswer:
    return PullAnswer(PullStatus.FOUND, following, 0, 10, records(first), "FOUND")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Asked], list[Any]]]:
    monkeypatch.setattr(pulls, "_ODD_ANSWERS", 1)
    threads: list[LoopThread] = []

    def work(answer: Asked) -> list[Any]:
        scripted = Scripted(answer)
        threads.append(scripted.thread)
        with Pulls(cast(Brokers, scripted), [QueueRange("t@b", 0, 0, 10)]) as made:
            return [piece.lost or int.from_bytes(piece.records[20:28], "big") for piece in made]

    yield work
    for thread in threads:
        thread.stop()


def moved(low: int, following: int) -> PullAnswer:
    return PullAnswer(PullStatus.OFFSET_MOVED, following, low, 10, b"", "OFFSET_TOO_SMALL")


def nothing(status: PullStatus, following: int, remark: str, high: int = 10) -> PullAnswer:
    return PullAnswer(status, following, 0, high, b"", remark)


@pytest.mark.parametrize(
    ("script", "came"),
    [
        ({0: found(0, 4), 4: found(4, 10)}, [0, 4]),
        # Retention removed the first messages, and the queue says so.
        ({0: moved(6, 6), 6: found(6, 10)}, [(0, 6), 6]),
        # The log is gone before the queue is: the broker passes over, with an answer or without.
        ({0: found(5, 10)}, [(3, 5), 5]),
        (
            {0: nothing(PullStatus.NO_MATCHED_MESSAGE, 7, "MESSAGE_WAS_REMOVING"), 7: found(7, 10)},
            [(3, 7), 7],
        ),
        # Offsets that never had a message are no loss.
        ({0: found(2, 10)}, [2]),
        ({0: nothing(PullStatus.NO_MATCHED_MESSAGE, 3, "NO_MATCHED_MESSAGE"), 3: found(3, 10)}, [3]),
        # A file of the queue can't be read: the broker jumps to the next.
        ({0: nothing(PullStatus.NO_NEW_MESSAGE, 8, "OFFSET_FOUND_NULL"), 8: found(8, 10)}, [(0, 8), 8]),
        # The queue ends before the planned end, however often it is asked.
        ({0: found(0, 6), 6: nothing(PullStatus.NO_NEW_MESSAGE, 6, "OFFSET_OVERFLOW_ONE", 6)}, [0, (6, 10)]),
    ],
)
def test_every_offset_is_read_or_told_to_be_lost(
    read: Callable[[Asked], list[Any]], script: dict[int, PullAnswer], came: list[Any]
) -> None:
    assert read(lambda offset: script[offset]) == came


def test_an_error_comes_to_whoever_reads(read: Callable[[Asked], list[Any]]) -> None:
    def fails(offset: int) -> PullAnswer:
        raise RemotingError("no more")

    with pytest.raises(RemotingError, match="no more"):
        read(fails)
