"""Java's client sees timed messages, recalls, batch queues and light queues as it does on RocketMQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from running import clusters
from stage import Cluster, Driver, seen_on_both

pytest.register_assert_rewrite("time_scenarios")

from time_scenarios import TIME  # noqa: E402

SETTINGS: dict[str, object] = {
    "recallMessageEnable": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "mappedFileSizeCommitLog": 64 << 20,
}


@pytest.fixture(scope="module")
def timely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    """Clusters that allow what is off by default."""
    with clusters(tmp_path_factory, SETTINGS) as find:
        yield find


@pytest.mark.parametrize("scenario", TIME)
def test_a_real_client_sees_what_it_sees_on_rocketmq(
    scenario: str,
    timely: Callable[[str], Cluster],
    client: Callable[[str], Driver],
    word: Callable[[], str],
) -> None:
    drivers = (client("java-5.5.0"), client("java-5.5.0"))
    seen = seen_on_both(TIME[scenario], timely, drivers, word)
    assert seen["penstock"] == seen["rocketmq"]
