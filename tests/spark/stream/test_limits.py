"""A batch takes what the limits allow, exactly, and no queue waits for ever."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.limits import behind, limit_bytes, limit_offsets
from penstock.spark.offsets import QueueKey

KEYS = st.tuples(st.sampled_from(["a", "b", "long-topic"]), st.integers(0, 7))
LAGS = st.dictionaries(KEYS, st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), max_size=12)


class Log:
    """Queues whose messages lie one behind the other in a log, in a given order."""

    def __init__(self, messages: list[tuple[QueueKey, int]], gap: int = 0) -> None:
        self.queues: dict[QueueKey, list[tuple[int, int, int]]] = {}
        place = 0
        for key, size in messages:
            units = self.queues.setdefault(key, [])
            units.append((len(units), place if size else 0, size))
            place += size + gap
        self.latest = {key: len(units) for key, units in self.queues.items()}
        self.start = dict.fromkeys(self.queues, 0)

    def units(self, key: QueueKey, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        return iter(self.queues[key][begin:end])

    def taken(self, ends: dict[QueueKey, int], start: dict[QueueKey, int]) -> list[tuple[int, int]]:
        """Place and size of the messages of a batch, in the order of the log."""
        return sorted(u[1:] for k in ends for u in self.queues[k][start[k] : ends[k]] if u[2])


MESSAGES = st.lists(st.tuples(KEYS, st.integers(0, 50)), max_size=60)


def place_of(key: QueueKey, offset: int) -> int:
    return hash((key, offset)) % 1000


@given(LAGS, st.integers(1, 10**6))
def test_offset_limit_is_used_up_exactly_and_never_passed(
    queues: dict[QueueKey, tuple[int, int]], limit: int
) -> None:
    start = {key: begin for key, (begin, _) in queues.items()}
    latest = {key: begin + lag for key, (begin, lag) in queues.items()}
    ends = limit_offsets(start, latest, limit, place_of)
    assert ends.keys() == start.keys()
    assert all(start[key] <= ends[key] <= latest[key] for key in start)
    assert sum(ends.values()) - sum(start.values()) == min(limit, sum(behind(start, latest).values()))


@given(LAGS, st.integers(12, 10**6))
def test_every_queue_with_messages_gets_its_share(
    queues: dict[QueueKey, tuple[int, int]], limit: int
) -> None:
    start = {key: begin for key, (begin, _) in queues.items()}
    latest = {key: begin + lag for key, (begin, lag) in queues.items()}
    ends = limit_offsets(start, latest, limit, place_of)
    lags = behind(start, latest)
    total = sum(lags.values())
    for key, lag in lags.items():
        given_here = ends[key] - start[key]
        assert given_here >= 1
        # One for each is set aside first; of the rest nobody is off by more than rounding.
        fair = lag if total <= limit else 1 + (lag - 1) * (limit - len(lags)) / max(1, total - len(lags))
        assert abs(given_here - fair) <= 1


@given(st.integers(1, 5), st.integers(6, 20))
def test_with_fewer_offsets_than_queues_the_oldest_message_goes_first(limit: int, count: int) -> None:
    """Producers keep every queue full; still each one has its turn within one round."""
    keys = [("t", number) for number in range(count)]
    next_place = {key: index for index, key in enumerate(keys)}
    offsets = dict.fromkeys(keys, 0)
    served: set[QueueKey] = set()
    clock = count
    for _ in range(-(-count // limit)):
        latest = {key: offset + 1000 for key, offset in offsets.items()}
        ends = limit_offsets(offsets, latest, limit, lambda key, _: next_place[key])
        for key in keys:
            if ends[key] > offsets[key]:
                served.add(key)
                clock += 1
                next_place[key] = clock
        offsets = ends
    assert served == set(keys)


@given(MESSAGES, st.integers(1, 400), st.integers(0, 30))
def test_byte_limit_takes_the_longest_stretch_of_the_log_that_fits(
    messages: list[tuple[QueueKey, int]], limit: int, gap: int
) -> None:
    log = Log(messages, gap)
    ends = limit_bytes(log.start, log.latest, limit, log.units)
    taken = log.taken(ends, log.start)
    everything = log.taken(log.latest, log.start)
    assert taken == everything[: len(taken)]
    size = sum(length for _, length in taken)
    assert size <= limit or len(taken) == 1
    if len(taken) < len(everything):
        assert taken
        assert size + everything[len(taken)][1] > limit
    else:
        assert ends == log.latest


@given(MESSAGES, st.integers(1, 400))
def test_batches_of_limited_bytes_deliver_everything_once(
    messages: list[tuple[QueueKey, int]], limit: int
) -> None:
    log = Log(messages)
    place, seen = log.start, []
    while place != log.latest:
        ends = limit_bytes(place, log.latest, limit, log.units)
        assert ends != place, "a batch must move on"
        seen += log.taken(ends, place)
        place = ends
    assert seen == log.taken(log.latest, log.start)


def test_message_that_two_queues_share_counts_for_both() -> None:
    shared = {("a", 0): [(0, 0, 10), (1, 10, 10)], ("b", 0): [(0, 0, 10), (1, 10, 10)]}

    def units(key: QueueKey, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        return iter(shared[key][begin:end])

    start = {("a", 0): 0, ("b", 0): 0}
    assert limit_bytes(start, {("a", 0): 2, ("b", 0): 2}, 20, units) == {("a", 0): 1, ("b", 0): 1}


def test_message_larger_than_the_limit_goes_alone() -> None:
    log = Log([(("a", 0), 100), (("b", 0), 1)])
    assert limit_bytes(log.start, log.latest, 10, log.units) == {("a", 0): 1, ("b", 0): 0}


def test_inner_batch_is_taken_whole_or_not_at_all() -> None:
    """One unit for several offsets; a start inside of it gets the rest of it."""
    batches = [(0, 0, 10), (5, 10, 10), (8, 20, 10)]

    def units(key: QueueKey, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        return iter([u for u, after in zip(batches, (5, 8, 9), strict=True) if after > begin and u[0] < end])

    key = ("a", 0)
    assert limit_bytes({key: 0}, {key: 9}, 25, units) == {key: 8}
    assert limit_bytes({key: 6}, {key: 9}, 5, units) == {key: 8}
    assert limit_bytes({key: 0}, {key: 9}, 30, units) == {key: 9}
