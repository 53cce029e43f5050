"""What TLS costs: the same Java client, the same load, the same broker, with and without."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.bench.broker.loads import Load
from penstock.bench.broker.turns import Scale, cpu_seconds
from penstock.bench.child import ChildFailed
from penstock.bench.peer import Peer
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.row import Row

TLS_OPTIONS = ("-Dtls.enable=true", "-Dtls.client.authServer=false")
"""How RocketMQ's client is told to speak TLS; it does not look at the certificate by default."""
_LOADS = (
    Load("tls-64-1k", "TLS, async flush, 64 senders, 1 KiB", "async", 0.6, 64),
    Load("tls-client-async", "TLS, async sends of the client, 1 KiB", "async", 0.6, 2, in_flight=512),
    Load("tls-batch-64", "TLS, batch of 32, 64 senders, 1 KiB", "async", 0.6, 64, batch=32),
)


def make_certificate(folder: Path) -> dict[str, object]:
    """A certificate that signs itself, as settings of a broker. Needs the ``openssl`` command."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench"]
    done = subprocess.run(
        [*command, "-keyout", str(key), "-out", str(cert)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ChildFailed(f"openssl made no certificate: {done.stderr[-400:]}")
    return {"tls.server.certPath": cert, "tls.server.keyPath": key}


def tls_rows(
    folder: Path, driver: Peer, options: tuple[str, ...], scale: Scale, wanted: Callable[[str], bool]
) -> Iterator[Row]:
    """Turns of both kinds on one broker; ``driver`` is the one without TLS, made with ``options``."""
    loads = [load for load in _LOADS if wanted(load.key)]
    if not loads or shutil.which("openssl") is None:
        return
    with tempfile.TemporaryDirectory(prefix="tls-", dir=folder) as place:
        settings = make_certificate(Path(place))
        broker = PenstockBroker(Path(place), settings, flush="async")
        with broker, Peer("ClientDriver", "5.5.0", (*options, *TLS_OPTIONS)) as encrypted:
            for each in (driver, encrypted):
                each.ask("load", **_LOADS[0].command(broker.namesrv, "T-warm", scale.first_warm_up))
            for load in loads:
                yield _row(load, broker, driver, encrypted, scale)


def _row(load: Load, broker: PenstockBroker, plain: Peer, encrypted: Peer, scale: Scale) -> Row:
    rates: dict[str, list[float]] = {"plain": [], "tls": []}
    used: dict[str, list[float]] = {"plain": [], "tls": []}
    for number in range(scale.rounds):
        order = [("plain", plain), ("tls", encrypted)]
        for name, driver in order if number % 2 == 0 else reversed(order):
            driver.ask("load", **load.command(broker.namesrv, f"T-{load.key}", scale.warm_up))
            before = cpu_seconds(broker.pid)
            answer = driver.ask("load", **load.command(broker.namesrv, f"T-{load.key}", scale.seconds))
            if answer["failed"]:
                raise ChildFailed(f"{answer['failed']} messages of {load.key} failed, {name}")
            rates[name].append(answer["rate"])
            used[name].append((cpu_seconds(broker.pid) - before) * 1e6 / max(answer["sent"], 1))
            driver.ask("end-load")
    figures = {name: statistics.median(found) for name, found in rates.items()}
    detail = {f"{name}_cpu_s_per_million": statistics.median(found) for name, found in used.items()}
    return Row(
        load.key,
        load.work,
        "msg/s",
        figures["tls"],
        figures["plain"],
        load.at_least,
        against="ours without",
        detail=detail,
    )
