"""What the name server knows: registrations, routes, expiry."""

from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.namesrv.routes import NameServer
from penstock.store.dataversion import DataVersion


def topic(read: int = 4, write: int = 4, perm: int = 6) -> dict[str, Any]:
    return {"readQueueNums": read, "writeQueueNums": write, "perm": perm, "topicSysFlag": 0}


def registered(server: NameServer, address: str = "127.0.0.1:10911", **changes: Any) -> bool:
    topics = changes.pop("topics", {"T": topic(), "TBW102": topic(8, 8, 7)})
    given = {"cluster": "C", "name": "broker-a", "address": address, "topics": topics}
    return server.register(**{**given, **changes})


def test_registered_topic_has_a_route() -> None:
    server = NameServer()
    assert registered(server)
    assert server.route("T") == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "127.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": "C",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
        ],
    }
    assert server.route("X") is None
    assert server.clusters() == {"C": ["broker-a"]}


def test_one_topic_is_merged_into_the_table_of_a_known_broker_only() -> None:
    server = NameServer()
    assert not registered(server, topics={"X": topic()})
    assert server.route("X") is None
    assert registered(server)
    assert registered(server, topics={"X": topic(2, 2)})
    assert sorted(server.topic_names()) == ["T", "TBW102", "X"]


def test_topic_of_two_brokers_has_the_queues_of_both() -> None:
    server = NameServer()
    registered(server)
    registered(server, "127.0.0.1:20911", name="broker-b")
    route = server.route("T")
    assert route is not None
    assert [queue["brokerName"] for queue in route["queueDatas"]] == ["broker-a", "broker-b"]
    assert [broker["brokerName"] for broker in route["brokerDatas"]] == ["broker-a", "broker-b"]
    server.unregister(cluster="C", name="broker-a", address="127.0.0.1:10911", broker_id=0)
    route = server.route("T")
    assert route is not None
    assert [queue["brokerName"] for queue in route["queueDatas"]] == ["broker-b"]


def test_silent_broker_expires_and_one_that_is_heard_does_not() -> None:
    clock = ManualClock()
    server = NameServer(clock)
    registered(server)
    registered(server, "127.0.0.1:20911", name="broker-b")
    registered(server, "127.0.0.1:30911", name="broker-c", expiry_ms=None)
    clock.advance(100_000)
    server.heartbeat(cluster="C", address="127.0.0.1:20911")
    clock.advance(30_000)
    assert server.expire() == ["127.0.0.1:10911"]
    assert server.clusters() == {"C": ["broker-b", "broker-c"]}


def test_lost_connection_takes_out_its_broker_unless_it_came_back_on_another() -> None:
    server = NameServer()
    first, second = object(), object()
    registered(server, owner=first)
    registered(server, owner=second)
    server.lost(first)
    assert server.route("T") is not None
    server.lost(second)
    assert server.route("T") is None
    assert server.brokers() == {}


def test_broker_that_moved_keeps_its_route_when_the_old_address_expires() -> None:
    clock = ManualClock()
    server = NameServer(clock)
    registered(server)
    clock.advance(100_000)
    registered(server, "127.0.0.1:10999")
    clock.advance(30_000)
    assert server.expire() == ["127.0.0.1:10911"]
    assert server.brokers()["broker-a"].addresses == {0: "127.0.0.1:10999"}


def test_slave_that_becomes_master_leaves_its_old_id() -> None:
    server = NameServer()
    registered(server)
    registered(server, "127.0.0.1:20911", broker_id=1)
    assert server.brokers()["broker-a"].addresses == {0: "127.0.0.1:10911", 1: "127.0.0.1:20911"}
    server.unregister(cluster="C", name="broker-a", address="127.0.0.1:10911", broker_id=0)
    registered(server, "127.0.0.1:20911", broker_id=0)
    assert server.brokers()["broker-a"].addresses == {0: "127.0.0.1:20911"}


def test_write_permission_is_taken_and_given_back() -> None:
    server = NameServer()
    registered(server)
    assert server.set_writable("broker-a", False) == 2
    route = server.route("T")
    assert route is not None and route["queueDatas"][0]["perm"] == 4
    assert server.set_writable("broker-a", True) == 2
    route = server.route("T")
    assert route is not None and route["queueDatas"][0]["perm"] == 6
    assert server.set_writable("nobody", False) == 0


def test_deleted_topic_is_gone_and_a_table_that_is_none_changes_nothing() -> None:
    server = NameServer()
    registered(server, version=DataVersion(0, 3, 5))
    with pytest.raises(ValueError):
        registered(server, topics={"A": topic(), "B": {"readQueueNums": "many"}})
    assert server.route("A") is None
    server.delete_topic("T", "other")
    assert server.route("T") is not None
    server.delete_topic("T")
    assert server.route("T") is None
    assert server.version_of("C", "127.0.0.1:10911") == DataVersion(0, 3, 5)
