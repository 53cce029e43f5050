"""Our own client and commands against a broker that wants TLS and an account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.talking import config, until
from penstock.broker import Broker
from penstock.cli.run import run
from penstock.client import Producer
from penstock.client.errors import BrokerError
from penstock.client.identity import credentials_of_environment, tls_of_environment
from penstock.client.settings import ClientSettings
from penstock.config.security import SecuritySettings
from penstock.config.tls import ClientTlsSettings, ServerTlsSettings
from penstock.errors import ConfigError, PenstockError
from penstock.message import Message
from penstock.namesrv import NameServerService
from penstock.namesrv.permissions import permissions
from penstock.remoting.signing import Credentials
from penstock.security.guard import Guard
from penstock.testing.broker import RunningBroker
from security.certificates import Authority
from security.people import ADMIN, MALLORY, write_accounts


class Door:
    """A broker that speaks TLS only and serves accounts only."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        pair = self.authority.sign("server")
        self.running = RunningBroker(
            folder / "store",
            acl_enable=True,
            accounts_file=write_accounts(folder / "accounts.json"),
            tls_server_mode="enforcing",
            tls_server_cert_path=pair.cert,
            tls_server_key_path=pair.key,
        )
        self.tls = ClientTlsSettings(trust_path=self.authority.trust)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    made = Door(tmp_path_factory.mktemp("door"))
    with made.running:
        made.running.create_topic("Mine", 2)
        yield made


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commands remember of their flags ends with the test."""
    for name in ("ACCESS_KEY", "SECRET_KEY", "CREDENTIALS", "TLS", "TLS_TRUST", "TLS_VERIFY"):
        monkeypatch.setenv(f"PENSTOCK_{name}", "x")
        monkeypatch.delenv(f"PENSTOCK_{name}")


def test_client_signs_and_encrypts_everything_it_does(door: Door) -> None:
    settings = ClientSettings(credentials=MALLORY, tls=door.tls, send_retries=0)

    async def scene() -> None:
        async with Producer("P", namesrv=door.running.namesrv, settings=settings) as producer:
            single = await producer.send(Message("Mine", b"one"))
            assert single.status == "SEND_OK"
            many = await producer.send_batch([Message("Mine", b"two"), Message("Mine", b"three")])
            assert len(many) == 2
            await producer.send_one_way(Message("Mine", b"four"))
            with pytest.raises(BrokerError, match="no permission"):
                await producer.send(Message("Theirs", b"x"))

    asyncio.run(scene())
    assert "secret" not in repr(settings)


@pytest.mark.parametrize("wrong", ["plain", "unsigned", "forged"])
def test_client_without_one_of_both_gets_nowhere(wrong: str, door: Door) -> None:
    credentials = {"plain": MALLORY, "unsigned": None, "forged": Credentials("mallory", "no such secret")}[
        wrong
    ]
    tls = None if wrong == "plain" else door.tls
    settings = ClientSettings(
        credentials=credentials, tls=tls, send_timeout=2, call_timeout=2, send_retries=0
    )

    async def scene() -> None:
        async with Producer("P", namesrv=door.running.namesrv, settings=settings) as producer:
            with pytest.raises(PenstockError):
                await producer.send(Message("Mine", b"x"))

    asyncio.run(scene())


def test_commands_take_an_account_and_a_certificate(
    door: Door, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "me.json"
    file.write_text(json.dumps({"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}))
    flags = ["--credentials", str(file), "--tls", "--tls-trust", door.authority.trust]
    where = ["--namesrv", door.running.namesrv]
    assert run([*flags, "send", "Mine", "hello", *where]) == 0
    assert run([*flags, "topic", "list", *where, "--json"]) == 0
    assert run(["--no-tls", "topic", "list", *where, "--json"]) == 2
    printed = "".join(capsys.readouterr())
    assert "Mine" in printed
    assert ADMIN.secret_key not in printed


def test_broker_signs_and_encrypts_what_it_tells_a_name_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path / "certificates")
    pair = authority.sign("server")
    security = SecuritySettings(
        tls=ServerTlsSettings(mode="enforcing", cert_path=pair.cert, key_path=pair.key),
        accounts_file=write_accounts(tmp_path / "accounts.json"),
    )
    account = {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}

    async def scene() -> None:
        service = NameServerService(guard=Guard(security, permissions()))
        await service.start(port=0)

        def told(name: str) -> bool:
            return name in service.name_server.brokers()

        async with service:
            for name, signed in (("stranger", False), ("known", True)):
                settings = config(
                    tmp_path / name,
                    broker_name=name,
                    namesrv_addr=service.address,
                    namesrv_embedded=False,
                    tls_enable=True,
                    tls_client_trust_cert_path=authority.trust,
                    inner_client_authentication_credentials=json.dumps(account) if signed else "",
                )
                async with Broker(settings):
                    await until(lambda: told(name) if signed else "refuses with 16" in caplog.text)  # noqa: B023
                    assert told(name) == signed

    asyncio.run(scene())
    assert ADMIN.secret_key not in caplog.text


def test_environment_names_an_account_and_tls(tmp_path: Path) -> None:
    assert credentials_of_environment({}) is None
    assert tls_of_environment({"PENSTOCK_TLS": "false"}) is None
    both = {"PENSTOCK_ACCESS_KEY": "a", "PENSTOCK_SECRET_KEY": "b"}
    assert credentials_of_environment(both) == Credentials("a", "b")
    file = tmp_path / "c.json"
    file.write_text('{"accessKey": "c", "secretKey": "d"}')
    assert credentials_of_environment({"PENSTOCK_CREDENTIALS": str(file)}) == Credentials("c", "d")
    file.write_text('{"accessKey": "hush-hush"}')
    for wrong in (
        {"PENSTOCK_ACCESS_KEY": "hush-hush"},
        {"PENSTOCK_CREDENTIALS": str(file)},
        {"PENSTOCK_CREDENTIALS": str(tmp_path / "none")},
    ):
        with pytest.raises(ConfigError) as found:
            credentials_of_environment(wrong)
        assert "hush-hush" not in str(found.value)
    assert tls_of_environment({"PENSTOCK_TLS": "1", "PENSTOCK_TLS_VERIFY": "no"}) == ClientTlsSettings(
        verify=False
    )
    with pytest.raises(ConfigError, match="PENSTOCK_TLS"):
        tls_of_environment({"PENSTOCK_TLS": "maybe"})


def test_accounts_are_kept_by_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, secret = tmp_path / "accounts.json", tmp_path / "shop.json"
    options = ["--file", str(file)]
    add = ["account", "add", "shop", *options, "--topic", "orders=PUB|SUB", "--group", "billing=SUB"]
    assert run([*add, "--credentials", str(secret)]) == 0
    assert run([*add, "--credentials", str(secret)]) == 2  # it is there already
    made = credentials_of_environment({"PENSTOCK_CREDENTIALS": str(secret)})
    assert made is not None
    assert made.access_key == "shop"
    assert len(made.secret_key) >= 24
    assert secret.stat().st_mode & 0o777 == file.stat().st_mode & 0o777 == 0o600
    assert run([*add, "--replace", "--admin"]) == 0  # keeps its secret
    assert made.secret_key in file.read_text()
    capsys.readouterr()
    assert run(["account", "list", *options, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == [
        {
            "name": "shop",
            "admin": True,
            "enabled": True,
            "topics": {"orders": "Pub|Sub"},
            "groups": {"billing": "Sub"},
            "from": [],
        }
    ]
    assert (
        run(["account", "add", "bad", *options, "--topic", "orders=WRITE", "--credentials", str(secret)]) == 2
    )
    assert run(["account", "add", "bad name", *options, "--credentials", str(secret)]) == 2
    assert run(["account", "remove", "nobody", *options, "--yes"]) == 2
    assert run(["account", "remove", "shop", *options, "--yes"]) == 0
    assert json.loads(file.read_text()) == {"accounts": []}
    printed = "".join(capsys.readouterr())
    assert made.secret_key not in printed
