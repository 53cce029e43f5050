"""Java's push consumer pops from our broker what it pops from RocketMQ's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from client_scenarios import Cluster, Driver, Observed, Stage
from pop_scenarios import POP


@pytest.mark.parametrize("scenario", POP)
def test_a_real_consumer_pops_what_it_pops_from_rocketmq(
    scenario: str,
    cluster: Callable[[str], Cluster],
    client: Callable[[str], Driver],
    word: Callable[[], str],
) -> None:
    seen: dict[str, Observed] = {}
    for side in ("penstock", "rocketmq"):
        stage = Stage(client("java-5.5.0"), client("java-5.5.0"), cluster(side), word())
        try:
            seen[side] = POP[scenario](stage)
        except AssertionError as error:
            error.add_note(f"on {side}")
            raise
        finally:
            stage.close()
    assert seen["penstock"] == seen["rocketmq"]
