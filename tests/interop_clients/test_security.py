"""RocketMQ's own clients and tools, with accounts and with TLS, on our broker and on RocketMQ's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from stage import numbered, wait_until

from penstock.bench.broker.tls import TLS_OPTIONS, make_certificate
from penstock.bench.child import ChildFailed
from penstock.bench.peer import INTEROP_OPTIONS, Peer, Version
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.rocketmq import SMALL_OPTIONS, RocketMQ

ADMIN = {"access_key": "rocketmq2", "secret_key": "12345678"}
ALICE = {"access_key": "alice", "secret_key": "alice-123"}
FORGED = {"access_key": "alice", "secret_key": "alice-124"}
NOBODY = {"access_key": "nobody", "secret_key": "alice-123"}
SIDES = ("penstock", "rocketmq")
VERSIONS: tuple[Version, ...] = ("5.5.0", "4.9.7")


def rocketmq_auth(folder: Path) -> dict[str, object]:
    """Lines of ``broker.conf`` that switch 5.x's accounts on; the users are made by mqadmin."""
    who = "org.apache.rocketmq.auth.authentication.provider"
    may = "org.apache.rocketmq.auth.authorization.provider"
    return {
        "authConfigPath": folder / "auth",
        "authenticationEnabled": "true",
        "authenticationProvider": f"{who}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{who}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": "rocketmq2", "password": "12345678"}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": "rocketmq2", "secretKey": "12345678"}
        ),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{may}.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{may}.LocalAuthorizationMetadataProvider",
        "traceTopicEnable": "false",
    }


@pytest.fixture(scope="module")
def drivers() -> Iterator[Callable[..., Peer]]:
    made: dict[tuple[Version, bool], Peer] = {}
    with ExitStack() as running:

        def find(version: Version, *, tls: bool = False) -> Peer:
            if (version, tls) not in made:
                options = (*INTEROP_OPTIONS, *(TLS_OPTIONS if tls else ()))
                made[version, tls] = running.enter_context(Peer("ClientDriver", version, options))
            return made[version, tls]

        yield find


# -- accounts ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, drivers: Callable[..., Peer]
) -> Iterator[Callable[[str], Any]]:
    """A cluster whose accounts are rocketmq2, an administrator, and alice, who has Mine and mine."""
    made: dict[str, Any] = {}
    with ExitStack() as running:

        def ours() -> PenstockBroker:
            folder = tmp_path_factory.mktemp("ours")
            file = folder / "accounts.json"
            accounts = [
                {"name": "rocketmq2", "secret": "12345678", "admin": True},
                {
                    "name": "alice",
                    "secret": "alice-123",
                    "topics": {"Mine": "PUB|SUB", "Denied": "DENY"},
                    "groups": {"mine": "SUB"},
                },
            ]
            file.write_text(json.dumps({"accounts": accounts}))
            settings = {
                "authenticationEnabled": "true",
                "authorizationEnabled": "true",
                "accounts_file": file,
            }
            return PenstockBroker(folder, settings=settings)

        def theirs() -> RocketMQ:
            folder = tmp_path_factory.mktemp("theirs")
            return RocketMQ(folder, settings=rocketmq_auth(folder))

        def find(side: str) -> Any:
            if side not in made:
                made[side] = running.enter_context(ours() if side == "penstock" else theirs())
                prepare(side, made[side], drivers("5.5.0"))
            return made[side]

        yield find


def prepare(side: str, cluster: Any, driver: Peer) -> None:
    where = {"namesrv": cluster.namesrv, "broker": cluster.address, **ADMIN}
    if side == "rocketmq":
        broker = ["-b", cluster.address]
        for arguments in (
            ["createUser", *broker, "-u", "alice", "-p", "alice-123", "-t", "Normal"],
            [
                "createAcl",
                *broker,
                "-s",
                "User:alice",
                "-r",
                "Topic:Mine,Group:mine",
                "-a",
                "Pub,Sub",
                "-d",
                "Allow",
            ],
            ["createAcl", *broker, "-s", "User:alice", "-r", "Topic:Denied", "-a", "Pub,Sub", "-d", "Deny"],
        ):
            mqadmin(driver, arguments)
    for topic in ("Mine", "Theirs", "Denied", "%RETRY%mine"):
        driver.ask("create-topic", topic=topic, queues=2, **where)


def mqadmin(driver: Peer, arguments: list[str], who: dict[str, str] | None = None) -> str:
    answer = driver.ask("mqadmin", arguments=arguments, **(ADMIN if who is None else who))
    return str(answer["stdout"]) + str(answer["stderr"])


def sent(driver: Peer, cluster: Any, who: dict[str, str], topic: str, word: str) -> list[Any]:
    """How two sends to a topic went: a status or a code each."""
    name = f"p-{word}"
    driver.ask("producer", name=name, group=f"P{word}", namesrv=cluster.namesrv, retries=0, **who)
    try:
        results = driver.ask("send", name=name, messages=numbered(topic, 2))["results"]
    except ChildFailed as error:  # not refused by a broker: the name server is out of reach
        return [error.message] * 2
    finally:
        driver.ask("stop-producer", name=name)
    return [result.get("status") or (result.get("code"), why(result)) for result in results]


def why(result: dict[str, Any]) -> str:
    """The broker's own words within what a client makes of them."""
    text = str(result.get("message", result))
    for words in (
        "no matched policies",
        "decision is deny",
        "check signature failed",
        "is not found",
        "cannot be null",
    ):
        if words in text:
            return words
    return text


SENDS = [
    ("right", ALICE, "Mine"),
    ("another's", ALICE, "Theirs"),
    ("denied", ALICE, "Denied"),
    ("forged", FORGED, "Mine"),
    ("unknown", NOBODY, "Mine"),
    ("unsigned", {}, "Mine"),
    ("administrator", ADMIN, "Theirs"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", SENDS, ids=[case[0] for case in SENDS])
def test_sends_are_let_through_and_refused_alike(
    case: tuple[str, dict[str, str], str],
    version: Version,
    guarded: Callable[[str], Any],
    drivers: Callable[..., Peer],
    word: Callable[[], str],
) -> None:
    name, who, topic = case
    seen = {side: sent(drivers(version), guarded(side), who, topic, word()) for side in SIDES}
    # Our name server asks too, RocketMQ's does not: a client may learn it there, in other words.
    expected = name in ("right", "administrator")
    for results in seen.values():
        assert [result == "SEND_OK" for result in results] == [expected] * 2, seen


@pytest.mark.parametrize("version", VERSIONS)
def test_consumer_with_rights_gets_messages_and_one_without_gets_none(
    version: Version, guarded: Callable[[str], Any], drivers: Callable[..., Peer], word: Callable[[], str]
) -> None:
    driver = drivers(version)
    for side in SIDES:
        cluster = guarded(side)
        name, stranger, body = f"c-{word()}", f"s-{word()}", f"body {word()}"
        where = {"namesrv": cluster.namesrv}
        driver.ask("consumer", name=name, topic="Mine", group="mine", **where, **ALICE)
        # Another's topic, with a group of her own: nothing of it reaches her.
        driver.ask("consumer", name=stranger, topic="Theirs", group="strangers", **where, **ALICE)
        producer = f"p-{word()}"
        driver.ask("producer", name=producer, group="P", **where, **ADMIN)
        messages = [{"topic": "Mine", "body": body}, {"topic": "Theirs", "body": body}]
        results = driver.ask("send", name=producer, messages=messages)["results"]
        assert [result.get("status") for result in results] == ["SEND_OK"] * 2

        def got(who: str) -> list[str]:
            answer = driver.ask("received", name=who, count=1, timeout_ms=100)
            return [message["body"] for message in answer["messages"]]

        try:
            wait_until(lambda: body in got(name), 60)  # noqa: B023
            assert got(stranger) == []
        finally:
            driver.ask("stop-producer", name=producer)
            driver.ask("stop-consumer", name=name)
            driver.ask("stop-consumer", name=stranger)


COMMANDS = [
    ["topicStatus", "-t", "Mine"],
    ["topicList"],
    ["clusterList"],
    ["topicRoute", "-t", "Mine"],
    ["updateTopic", "-t", "New", "-c", "DefaultCluster"],
]


@pytest.mark.parametrize("version", VERSIONS)
def test_mqadmin_signs_and_is_judged(
    version: Version, guarded: Callable[[str], Any], drivers: Callable[..., Peer]
) -> None:
    driver = drivers(version)
    for side in SIDES:
        cluster = guarded(side)
        for command in COMMANDS:
            printed = mqadmin(driver, [*command, "-n", cluster.namesrv])
            # 4.9.7's complains about its own logging first, whatever the broker says.
            assert "MQClientException" not in printed, (side, command, printed)
            assert "MQBrokerException" not in printed, (side, command, printed)
        create = ["updateTopic", "-n", cluster.namesrv, "-t", "Forbidden", "-b", cluster.address]
        mqadmin(driver, create, ALICE)  # 4.9.7 keeps to itself why it failed
        assert "Forbidden" not in mqadmin(driver, ["topicList", "-n", cluster.namesrv]), side


def test_users_and_rights_are_listed_for_an_administrator(
    guarded: Callable[[str], Any], drivers: Callable[..., Peer]
) -> None:
    driver, cluster = drivers("5.5.0"), guarded("penstock")
    users = mqadmin(driver, ["listUser", "-b", cluster.address])
    assert "alice" in users
    assert "Super" in users
    assert "alice-123" not in users
    rights = mqadmin(driver, ["getAcl", "-b", cluster.address, "-s", "User:alice"])
    assert "Topic:Mine" in rights
    refused = mqadmin(
        driver, ["createUser", "-b", cluster.address, "-u", "eve", "-p", "eve-12345", "-t", "Super"]
    )
    assert "penstock account" in refused


# -- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Clusters that speak TLS only."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl not found")
    made: dict[str, Any] = {}
    with ExitStack() as running:

        def find(side: str) -> Any:
            if side not in made:
                folder = tmp_path_factory.mktemp(side)
                if side == "penstock":
                    settings = {**make_certificate(folder), "tls.server.mode": "enforcing"}
                    made[side] = running.enter_context(PenstockBroker(folder, settings=settings))
                else:
                    # It makes a certificate for itself, and speaks TLS to the name server as well.
                    options = (*SMALL_OPTIONS, "-Dtls.server.mode=enforcing", "-Dtls.enable=true")
                    made[side] = running.enter_context(RocketMQ(folder, options=options))
            return made[side]

        yield find


@pytest.mark.parametrize("version", VERSIONS)
def test_tls_clients_are_served_and_plain_ones_are_not(
    version: Version, enforcing: Callable[[str], Any], drivers: Callable[..., Peer], word: Callable[[], str]
) -> None:
    for side in SIDES:
        cluster = enforcing(side)
        encrypted = drivers(version, tls=True)
        topic = f"T{word()}"
        # The first handshake of a virtual machine can take longer than a client waits for a route.
        wait_until(lambda: sent(encrypted, cluster, {}, topic, word()) == ["SEND_OK"] * 2)  # noqa: B023
        name = f"c-{word()}"
        encrypted.ask("consumer", name=name, topic=topic, group=f"g{word()}", namesrv=cluster.namesrv)
        got = encrypted.ask("received", name=name, count=2, timeout_ms=60_000)["messages"]
        encrypted.ask("stop-consumer", name=name)
        assert {message["body"] for message in got} == {"m0", "m1"}
        plain = sent(drivers(version), cluster, {}, topic, word())
        assert not any(result == "SEND_OK" for result in plain), side
