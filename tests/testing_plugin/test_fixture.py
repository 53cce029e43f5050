"""The pytest plugin, as somebody else's tests use it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import penstock

THEIRS = """
from penstock import Message
from penstock.client.sync import Consumer, Producer


def test_a_message_goes_round(penstock_broker):
    penstock_broker.create_topic("orders", 2)
    with Producer(namesrv=penstock_broker.namesrv) as producer:
        sent = producer.send(Message("orders", b"tea"))
    assert penstock_broker.store.lookup(sent.offset_message_id).body == b"tea"
    penstock_broker.restart()
    with Consumer("kitchen", "orders", namesrv=penstock_broker.namesrv, start="earliest") as consumer:
        with consumer.next(timeout=30) as message:
            assert message.body == b"tea"


def test_brokers_do_not_share(penstock_broker_factory):
    first, second = penstock_broker_factory(), penstock_broker_factory(broker_name="broker-b")
    first.create_topic("orders")
    assert first.address != second.address
    assert "orders" in first.broker.topics
    assert "orders" not in second.broker.topics
"""


def test_the_fixtures_work_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if not any(entry.name == "penstock" for entry in entry_points(group="pytest11")):
        command += ["-p", "penstock.testing.plugin"]  # not installed, or not since there is a plugin
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(penstock.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_loading_the_plugin_imports_no_broker() -> None:
    code = "import sys, penstock.testing.plugin; print('penstock.broker' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(Path(penstock.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "False"
