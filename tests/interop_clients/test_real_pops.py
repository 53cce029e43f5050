"""Java's push consumer pops from our broker what it pops from RocketMQ's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pop_scenarios import POP
from stage import Cluster, Driver, seen_on_both


@pytest.mark.parametrize("scenario", POP)
def test_a_real_consumer_pops_what_it_pops_from_rocketmq(
    scenario: str,
    cluster: Callable[[str], Cluster],
    client: Callable[[str], Driver],
    word: Callable[[], str],
) -> None:
    drivers = (client("java-5.5.0"), client("java-5.5.0"))
    seen = seen_on_both(POP[scenario], cluster, drivers, word)
    assert seen["penstock"] == seen["rocketmq"]
