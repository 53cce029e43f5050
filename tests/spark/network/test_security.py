"""Brokers that want an account and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import StoreConfig
from penstock.errors import PenstockError, UsageError
from penstock.spark.network.access import make_access
from penstock.spark.network.rowsender import Identity, RowSender
from penstock.spark.network.writer import access_of
from penstock.spark.options import ReadOptions
from penstock.spark.rowencoder import WritePlan
from penstock.spark.writeoptions import WriteOptions
from penstock.testing import RunningBroker
from security.certificates import Authority
from security.people import MALLORY, write_accounts
from spark.network.rows import planned, rows


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, str]]:
    """A broker that speaks TLS only and serves accounts only; and who vouches for it."""
    folder: Path = tmp_path_factory.mktemp("door")
    authority = Authority(folder / "certificates")
    pair = authority.sign("server")
    broker = RunningBroker(
        folder / "store",
        acl_enable=True,
        accounts_file=write_accounts(folder / "accounts.json"),
        tls_server_mode="enforcing",
        tls_server_cert_path=pair.cert,
        tls_server_key_path=pair.key,
    )
    with broker:
        broker.create_topic("Mine", 2)
        broker.create_topic("Theirs", 2)
        yield broker, authority.trust


def test_an_account_reads_and_writes_what_it_may(door: tuple[RunningBroker, str]) -> None:
    broker, trust = door
    options: dict[str, Any] = {
        "accessKey": MALLORY.access_key,
        "secretKey": MALLORY.secret_key,
        "tls": "true",
        "tlsTrust": trust,
        "requestTimeout": "5s",
    }
    given = WriteOptions.parse({"namesrv": broker.namesrv, "topic": "Mine", **options})
    plan = WritePlan(given, ("body",), StoreConfig())
    batch = pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in range(50)]})
    assert RowSender(plan, access_of(given), Identity("w", 0)).send([batch]).sent == 50
    own = {**options, "consumerGroup": "mine"}
    assert len(rows(broker.namesrv, subscribe="Mine", **own)) == 50
    for wrong in ({**own, "secretKey": "guessed"}, {**options, "consumerGroup": "theirs"}):
        with pytest.raises(PenstockError) as failed:
            rows(broker.namesrv, subscribe="Mine", **wrong)
        assert MALLORY.secret_key not in str(failed.value)
    with pytest.raises(PenstockError):
        rows(broker.namesrv, subscribe="Theirs", **own)


def test_secrets_are_in_no_text_that_is_shown() -> None:
    options = {
        "namesrv": "h:1",
        "accessKey": "a",
        "secretKey": "hidden",
        "tls": "true",
        "tlsKeyPassword": "hidden",
    }
    parsed = ReadOptions.parse(options)
    written = WriteOptions.parse({**options, "topic": "t"})
    shown = [repr(parsed), repr(written), repr(access_of(written)), str(access_of(written))]
    assert not any("hidden" in text for text in shown)
    assert access_of(written).credentials is not None


def test_half_an_account_is_refused() -> None:
    with pytest.raises(UsageError, match="come together"):
        make_access("h:1", "g", {"accessKey": "a"})
    with pytest.raises(UsageError, match="come together"):
        planned("127.0.0.1:1", secretKey="s")
