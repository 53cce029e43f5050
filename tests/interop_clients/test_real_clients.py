"""RocketMQ's own clients, unmodified, see the same on our broker as on RocketMQ's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from client_scenarios import GO, JAVA
from stage import Cluster, Driver, seen_on_both

CASES = [
    *(pytest.param("java-5.5.0", name, id=f"java-5.5.0-{name}") for name in JAVA),
    *(pytest.param("java-4.9.7", name, id=f"java-4.9.7-{name}") for name in JAVA),
    *(pytest.param("go", name, id=f"go-{name}") for name in GO),
]


@pytest.mark.parametrize(("kind", "scenario"), CASES)
def test_a_real_client_sees_what_it_sees_on_rocketmq(
    kind: str,
    scenario: str,
    cluster: Callable[[str], Cluster],
    client: Callable[[str], Driver],
    word: Callable[[], str],
) -> None:
    play = (GO if kind == "go" else JAVA)[scenario]
    drivers = (client(kind), client("java-5.5.0"))
    seen = seen_on_both(play, cluster, drivers, word)
    assert seen["penstock"] == seen["rocketmq"]
