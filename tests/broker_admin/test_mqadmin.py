"""RocketMQ's own tool works with our broker and name server (needs Java and Maven)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_admin.conftest import Operator
from penstock.bench.peer import VERSIONS, Version, build, java_command, java_environment, missing_tools

Operate = Callable[..., None]

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing_tools()), reason=f"{' and '.join(missing_tools())} not found"),
]

# Command without its name server, and a pattern that its output must have. {b} is the broker's address.
COMMANDS: list[tuple[str, str]] = [
    ("clusterList", "broker-a"),
    ("updateTopic -c DefaultCluster -t AdmT -r 4 -w 4", "success"),
    ("updateTopic -b {b} -t AdmT2 -r 2 -w 2", "success"),
    ("topicList", "AdmT2"),
    ("topicRoute -t AdmT", "{b}"),
    ("topicClusterList -t AdmT", "DefaultCluster"),
    ("sendMessage -t AdmT -k key1 -c TagA -p hello-admin", "SEND_OK"),
    ("topicStatus -t AdmT", "broker-a"),
    ("brokerStatus -b {b}", "brokerVersionDesc"),
    ("updateSubGroup -c DefaultCluster -g adm_g -r 5 -q 1", "success"),
    ("queryMsgByKey -t AdmT -k key1", r"\n[0-9A-F]{32,} "),
    ("consumeMessage -t AdmT -c 100", "BODY: hello-admin"),
    ("getBrokerConfig -b {b}", "brokerClusterName"),
    ("updateBrokerConfig -b {b} -k shortPollingTimeMills -v 900", "success"),
    ("updateBrokerConfig -b {b} -k brokerConfigPath -v /x", "Can not update config in black list"),
    ("resetOffsetByTime -g adm_g -t AdmT -s now", "broker-a"),
    ("consumerProgress -g adm_c", r"AdmT +broker-a +0"),
    ("queryCq -t AdmT -q 0 -i 0 -c 2 -b {b}", "Queue data"),
    ("brokerConsumeStats -b {b}", "adm_g"),
    ("producerConnection -g nobody -t AdmT", "not exist"),
    ("consumerConnection -g adm_c", "me@1"),
    ("consumerConnection -g TOOLS_CONSUMER", "not online|No topic route info"),
    ("updateKvConfig -s NSX -k kk -v vv", "success"),
    ("deleteKvConfig -s NSX -k kk", "success"),
    ("getNamesrvConfig", "orderMessageEnable"),
    ("wipeWritePerm -b broker-a", "wipe write perm"),
    ("statsAll -t AdmT", "AdmT"),
    ("deleteSubGroup -c DefaultCluster -g adm_g", "success"),
    ("deleteTopic -c DefaultCluster -t AdmT2", "success"),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_mqadmin_commands_work(operate: Operate, version: Version, tmp_path: Path) -> None:
    async def scenario(operator: Operator) -> None:
        broker = operator.broker
        source = str(Path(__file__).with_name("Commands.java"))
        class_path = await asyncio.to_thread(build, version, "client-pom.xml")
        # 4.9 does not start without this file, whatever it says.
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
        home = f"-Drocketmq.home.dir={tmp_path}"
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", home)
        await operator.create("AdmT", 4)
        await operator.heartbeat("adm_c", "AdmT")
        await operator.done(15, consumerGroup="adm_c", topic="AdmT", queueId=0, commitOffset=0)
        command = java_command(class_path, source, options, str(tmp_path))
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=java_environment(),
        )
        assert process.stdin is not None and process.stdout is not None
        missing = []
        try:
            for text, expected in COMMANDS:
                words = text.format(b=broker.address).split(" ")
                words[1:1] = ["-n", broker.namesrv_address]
                process.stdin.write("\t".join(words).encode() + b"\n")
                output = ""
                while not output.endswith("=== done\n"):
                    line = await process.stdout.readline()
                    assert line, f"mqadmin ended at {text!r}: {output}"
                    output += line.decode()
                if not re.search(expected.replace("{b}", broker.address), output):
                    missing.append((text, output))
        finally:
            process.stdin.close()
            if process.returncode is None:
                process.kill()
            await process.wait()
        assert missing == [], "\n".join(f"{text}:\n{output}" for text, output in missing)

    operate(scenario, seconds=300)
