"""RocketMQ's own tool prints the same on our broker as on RocketMQ's (needs Java and Maven)."""

from __future__ import annotations

import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker_admin.mqadmin_commands import FOREVER, RUNS, Run, shape
from penstock.bench.peer import (
    INTEROP_OPTIONS,
    VERSIONS,
    Peer,
    Version,
    build,
    java_command,
    java_environment,
    missing_tools,
)
from penstock.bench.penstockbroker import PenstockBroker
from penstock.bench.rocketmq import RocketMQ

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing_tools()), reason=f"{' and '.join(missing_tools())} not found"),
]

SETTINGS: dict[str, object] = {"mappedFileSizeCommitLog": 16 << 20, "enablePropertyFilter": "true"}
Printed = dict[Run, tuple[str, str]]


def prepare(driver: Peer, cluster: PenstockBroker | RocketMQ, folder: Path) -> dict[str, str]:
    """A topic with a message, a producer and a consumer that are online, files to read; what names them."""
    where = {"namesrv": cluster.namesrv}
    for topic, queues in (("AdmT", 4), ("%RETRY%adm_c", 1)):
        driver.ask("create-topic", **where, broker=cluster.address, topic=topic, queues=queues)
    driver.ask("producer", **where, name="producer", group="adm_p", timeout_ms=60_000)
    message = {"topic": "AdmT", "body": "hello", "keys": "key1", "tags": "TagA"}
    messages = [{**message, "order": queue} for queue in range(4)]
    sent = driver.ask("send", name="producer", messages=messages, mode="sync")["results"][0]
    driver.ask("consumer", **where, name="consumer", group="adm_c", topic="AdmT")
    driver.ask("received", name="consumer", count=4, timeout_ms=60_000)
    topic = {"topicName": "AdmL", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    (folder / "topics.json").write_text(json.dumps([topic]))
    (folder / "groups.json").write_text(json.dumps([{"groupName": "adm_l"}]))
    ids = {"id": sent["offset_message_id"], "key": sent["message_id"]}
    return {**ids, "b": cluster.address, "n": cluster.namesrv, "f": str(folder), "client": ""}


def await_offsets(tool: Peer, cluster: PenstockBroker | RocketMQ) -> None:
    """Until the consumer, which tells its offsets every five seconds, has told those of all queues."""
    deadline = time.monotonic() + 60
    arguments = ["consumerProgress", "-n", cluster.namesrv, "-g", "adm_c"]
    while True:
        rows = re.findall(r"^AdmT .*", tool.ask("mqadmin", arguments=arguments)["stdout"], re.MULTILINE)
        if len(rows) == 4 and not any("N/A" in row for row in rows):
            return
        assert time.monotonic() < deadline, rows


def run_all(cluster: PenstockBroker | RocketMQ, version: Version, folder: Path) -> Printed:
    """What every command prints, run one after the other while a client is online."""
    # 4.9 does not start without this file, whatever it says.
    (folder / "conf").mkdir()
    (folder / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
    options = (*INTEROP_OPTIONS, f"-Drocketmq.home.dir={folder}", f"-Djava.io.tmpdir={folder}")
    printed: Printed = {}
    with cluster, Peer("ClientDriver", version, options) as client:
        words = prepare(client, cluster, folder)
        with Peer("ClientDriver", version, options) as tool:
            await_offsets(tool, cluster)
            for run in RUNS:
                if not run.since <= version <= run.until:
                    continue
                command, *arguments = run.text.split(" ")
                filled = [argument.format(**words) for argument in arguments]
                answer = tool.ask("mqadmin", arguments=[command, "-n", words["n"], *filled])
                printed[run] = answer["stdout"], answer["stderr"]
                if run.text == "consumerConnection -g adm_c":
                    found = re.search(r"^\S+@\S+", answer["stdout"], re.MULTILINE)
                    words["client"] = found[0] if found else ""
    return printed


@pytest.mark.parametrize("version", VERSIONS)
def test_mqadmin_prints_the_same_on_both_brokers(
    version: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {side: tmp_path / side for side in ("ours", "theirs")}
    for folder in folders.values():
        folder.mkdir()
    # One command writes its findings to where it was started.
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(2) as both:
        ours = both.submit(
            run_all, PenstockBroker(folders["ours"], settings=SETTINGS), version, folders["ours"]
        )
        theirs = both.submit(
            run_all, RocketMQ(folders["theirs"], settings=SETTINGS), version, folders["theirs"]
        )
    faults = []
    for run, (output, errors) in ours.result().items():
        if run.refused:
            if (run.sign or f"CODE: {run.refused} ") not in errors + output:
                faults.append(f"{run.text}: not refused with {run.refused}:\n{output}{errors}")
            continue
        mine = shape(run, output, errors, str(folders["ours"]))
        other = shape(run, *theirs.result()[run], str(folders["theirs"]))
        if mine != other or bool(mine) == run.quiet:
            faults.append(f"{run.text}:\n  ours only: {mine - other}\n  theirs only: {other - mine}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_command_that_never_ends_works_until_it_is_stopped(version: Version, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
    options = (*INTEROP_OPTIONS, f"-Drocketmq.home.dir={tmp_path}")
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    java = java_command(build(version, "client-pom.xml"), main, options, str(tmp_path))
    with PenstockBroker(tmp_path / "broker", settings=SETTINGS) as broker:
        command = [*java, FOREVER, "-n", broker.namesrv, "-a", "2", "-s", "16", "-i", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=java_environment()) as process:
            try:
                assert process.stdout is not None
                rows = (line.split() for line in process.stdout)
                row = next(row for row in rows if row[:2] == ["DefaultCluster", "broker-a"])
            finally:
                process.kill()
    # Cluster, broker, time of a send, how many were sent, how many of them failed.
    assert row[3:] == ["2", "0"]
