"""Java's push consumer pops from our broker what it pops from RocketMQ's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pop_scenarios import POP
from stage import Cluster, Driver, Stage, bodies, numbered, seen_on_both, statuses, wait_until

from penstock.bench.penstockbroker import PenstockBroker


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


def test_a_real_consumer_pops_everything_from_a_topic_of_two_brokers(
    client: Callable[[str], Driver], tmp_path: Path
) -> None:
    java = client("java-5.5.0")
    with PenstockBroker(tmp_path / "a") as first:
        # One name server for both: the first broker's.
        settings = {"brokerName": "broker-b", "namesrvAddr": first.namesrv, "namesrv_embedded": "false"}
        with PenstockBroker(tmp_path / "b", settings=settings) as second:
            stage = Stage(java, java, first, "two")
            try:
                for broker in (first, second):
                    for topic, queues in (("T_two", 2), ("%RETRY%G_two", 1)):
                        where = {"namesrv": first.namesrv, "broker": broker.address}
                        java.ask("create-topic", **where, topic=topic, queues=queues)
                command = ["setConsumeMode", "-n", first.namesrv, "-c", "DefaultCluster"]
                command += ["-t", "T_two", "-g", "G_two", "-m", "POP", "-q", "0"]
                wait_until(lambda: java.ask("mqadmin", arguments=command)["stdout"].count("success") >= 2)
                producer = stage.producer()
                sent = stage.send(producer, numbered("T_two", 40))
                assert statuses(sent) == ["SEND_OK"] * 40
                assert {result["broker"] for result in sent} == {"broker-a", "broker-b"}
                got = stage.received(stage.consumer("T_two", "G_two", pop=True), 40)
                assert bodies(got) == bodies(numbered("T_two", 40))
                wait_until(lambda: stage.committed("T_two", "G_two") == 40)
            finally:
                stage.close()
