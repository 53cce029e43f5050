"""Who consumes which queue, as the broker says it (protocol 3.9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_pop.popping import Client, play
from penstock.broker import Broker
from penstock.broker.popassign import STRATEGIES


async def assigned(client: Client, client_id: str, **more: Any) -> Any:
    asked = {
        "clientId": client_id,
        "consumerGroup": "G",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": "T",
        **more,
    }
    answer = await client.call(400, body=json.dumps(asked).encode())
    assert answer.code == 0
    found = json.loads(bytes(answer.body))
    if not found:
        return None
    return [(each["messageQueue"]["queueId"], each["mode"]) for each in found["messageQueueAssignments"]]


async def set_mode(client: Client, mode: str, share: int = 0, topic: str = "T") -> int:
    body = {"consumerGroup": "G", "mode": mode, "popShareQueueNum": share, "topic": topic}
    return (await client.call(401, body=json.dumps(body).encode())).code


def test_a_group_is_told_to_pull_or_to_pop_and_that_is_kept(tmp_path: Path) -> None:
    async def scene(broker: Broker, client: Client) -> None:
        assert await assigned(client, "c1") is None
        await client.heartbeat("G", "T", client="c1")
        assert await assigned(client, "c1") == [(0, "PULL"), (1, "PULL"), (2, "PULL"), (3, "PULL")]
        assert await assigned(client, "c1", strategyName="NONSENSE") is None
        assert await assigned(client, "c1", topic="Nope") is None
        assert await assigned(client, "stranger") == []
        assert await set_mode(client, "POP") == 0
        assert await assigned(client, "c1") == [(-1, "POP")]
        assert await set_mode(client, "POP", 1) == 0
        assert await assigned(client, "c1") == [(queue, "POP") for queue in range(4)]
        assert await assigned(client, "c1", topic="%RETRY%G", messageModel="BROADCASTING") in (
            None,
            [(0, "PULL")],
        )
        assert await set_mode(client, "POP", topic="%RETRY%G") == 16
        assert await set_mode(client, "POP", topic="Nope") == 17

    async def later(broker: Broker, client: Client) -> None:
        await client.heartbeat("G", "T", client="c1")
        assert await assigned(client, "c1") == [(queue, "POP") for queue in range(4)]
        modes = json.loads(bytes((await client.call(402)).body))
        assert modes["messageRequestModeMap"]["T"]["G"]["popShareQueueNum"] == 1

    play(tmp_path, scene, queues=4)
    play(tmp_path, later, queues=4)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(sorted(STRATEGIES)))
def test_every_queue_has_one_owner(queues: int, clients: int, strategy: str) -> None:
    shares = [STRATEGIES[strategy](list(range(queues)), clients, index) for index in range(clients)]
    assert sorted(queue for share in shares for queue in share) == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
