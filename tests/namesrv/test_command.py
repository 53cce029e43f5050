"""``penstock namesrv`` serves until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

from penstock.remoting import Command, RemotingClient, RequestCode
from penstock.remoting.client import split_address


def few_files() -> None:
    """The soft limit that some systems start a process with: the command has to raise it."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_command_serves_and_leaves_in_order() -> None:
    command = [sys.executable, "-m", "penstock", "namesrv", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=few_files) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]

            async def ask() -> Command:
                client = RemotingClient()
                try:
                    return await client.call(
                        address, Command.request(RequestCode.GET_BROKER_CLUSTER_INFO), 10
                    )
                finally:
                    await client.close()

            answer = asyncio.run(ask())
            assert json.loads(bytes(answer.body)) == {"brokerAddrTable": {}, "clusterAddrTable": {}}
            many = [socket.create_connection(split_address(address)) for _ in range(200)]
            assert asyncio.run(ask()).code == 0
            for each in many:
                each.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_key_value_configuration_survives_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "here" / "kvConfig.json"
    command = [sys.executable, "-m", "penstock", "namesrv", "--port", "0", "--json", "--kv-file", str(file)]

    def run(code: int, **fields: str) -> Command:
        async def ask(address: str) -> Command:
            client = RemotingClient()
            try:
                return await client.call(address, Command.request(code, fields), 10)
            finally:
                await client.close()

        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                return asyncio.run(ask(json.loads(process.stdout.readline())["address"]))
            finally:
                process.kill()

    assert run(RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value="v").code == 0
    assert json.loads(file.read_text()) == {"configTable": {"N": {"k": "v"}}}
    assert run(RequestCode.GET_KV_CONFIG, namespace="N", key="k").fields == {"value": "v"}
