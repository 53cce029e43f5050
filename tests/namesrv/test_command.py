"""``penstock namesrv`` serves until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

from penstock.remoting import Command, RemotingClient, RequestCode


def test_command_serves_and_leaves_in_order() -> None:
    command = [sys.executable, "-m", "penstock", "namesrv", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
