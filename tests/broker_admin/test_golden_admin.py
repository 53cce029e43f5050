"""What a real broker answered to an operator's requests, right and wrong ones, is what ours answers."""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.conftest import Operator
from golden_wire import conversation
from penstock.remoting.command import decode

Operate = Callable[..., None]

# The timer's figures: this broker has no timer. The last is the name server's.
NOT_SERVED = {60, 61, 901}
# Where it fails with the text of a Java exception we say what is wrong.
OWN_WORDS = "java."


def test_operators_requests_are_answered_as_rocketmq_does(operate: Operate) -> None:
    _, frames = conversation("mqadmin-raw-errors")
    asked = {}
    compared = 0

    async def scenario(operator: Operator) -> None:
        nonlocal compared
        await operator.create("GoSync", 4)
        for _ in range(3):
            await operator.send("GoSync", b"x", 1, "KEYS\x01k0\x02")
        for group in ("go_cg", "raw_adm_g"):
            await operator.done(200, f'{{"groupName":"{group}"}}'.encode())
        for queue_id in range(4):
            await operator.done(15, consumerGroup="go_cg", topic="GoSync", queueId=queue_id, commitOffset=0)
        faults = []
        for recorded in frames:
            command = decode(recorded.frame)
            if recorded.to == "broker" and not command.is_response:
                asked[recorded.connection, command.opaque] = command
                continue
            question = asked.pop((recorded.connection, command.opaque), None)
            if recorded.to != "client" or question is None or question.code in NOT_SERVED:
                continue
            if bytes(question.body) == b"nosuchkey=1\n":
                continue  # a setting that does not exist: we say so
            ours = await operator.client.call(operator.broker.address, question, 20)
            theirs = command.remark or ""
            same = ours.code == command.code and (
                theirs.startswith(OWN_WORDS) or ours.remark == command.remark
            )
            if not same or bool(ours.body) != bool(command.body):
                faults.append((question, command, ours))
            compared += 1
        assert faults == []

    operate(scenario)
    assert compared > 40
