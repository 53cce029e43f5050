"""Who consumes which queue, said by the broker, and whether by pulls or by pops (protocol 3.2 and 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.broker.bodies import body_object, json_answer
from penstock.broker.consumers import BROADCASTING, CLUSTERING
from penstock.broker.names import FAQ
from penstock.broker.statefile import StateFile
from penstock.errors import RequestRefused
from penstock.message.topic import RETRY_TOPIC_PREFIX
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

PULL, POP = "PULL", "POP"

Place: TypeAlias = tuple[str, int]
"""A queue of the topic: its broker and its number, -1 for all that the broker has."""


class RequestModes:
    """How groups consume topics (``config/messageRequestMode.json``). Lives on the loop; the file follows."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, dict[str, Any]]] = {}
        self.file: StateFile | None = None

    def load(self, content: Any) -> None:
        """Take over what the file holds. ValueError when it is no table of modes."""
        if content is None:
            return
        table = content.get("messageRequestModeMap") if isinstance(content, dict) else None
        if not isinstance(table, dict):
            raise ValueError("messageRequestMode.json holds no messageRequestModeMap")
        for topic, groups in table.items():
            if not isinstance(groups, dict):
                raise ValueError(f"the groups of {topic!r} are no object")
            for group, entry in groups.items():
                if not isinstance(entry, dict):
                    raise ValueError(f"{topic}, {group}: no mode")
                # RocketMQ keeps what it was told, and a mode that it does not know is none.
                if entry.get("mode") in (PULL, POP):
                    self._put(str(topic), str(group), entry["mode"], entry.get("popShareQueueNum"))

    def _put(self, topic: str, group: str, mode: str, share: Any) -> None:
        self._table.setdefault(topic, {})[group] = {
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": share if type(share) is int else 0,
            "topic": topic,
        }

    def content(self) -> dict[str, Any]:
        """What the file is to hold."""
        return {"messageRequestModeMap": self._table}

    def set(self, topic: str, group: str, mode: str, share: int) -> None:
        self._put(topic, group, mode, share)
        if self.file is not None:
            self.file.changed()

    def find(self, topic: str, group: str) -> tuple[str, int]:
        """Mode, and how many others share a queue with each consumer; pulls where nobody said anything."""
        entry = self._table.get(topic, {}).get(group)
        return (entry["mode"], entry["popShareQueueNum"]) if entry is not None else (PULL, -1)


class Assignment:
    """Answers what clients ask that leave the balancing to the broker."""

    def __init__(self, broker: Broker, modes: RequestModes) -> None:
        """``modes`` are loaded already."""
        self._broker = broker
        self._modes = modes

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    def all_modes(self, connection: Connection, request: Command) -> Command:
        return json_answer(request, self._modes.content())

    async def set_mode(self, connection: Connection, request: Command) -> Command:
        wanted = body_object(request)
        topic, group = str(wanted.get("topic") or ""), str(wanted.get("consumerGroup") or "")
        mode, share = wanted.get("mode"), wanted.get("popShareQueueNum", 0)
        broker = self._broker
        if topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if broker.topics.find(topic) is None:
            remark = f"topic[{topic}] not exist"
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if broker.groups.get(group) is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if mode not in (PULL, POP) or type(share) is not int or not -(2**31) <= share < 2**31:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "no mode, or no number of queues to share")
        self._modes.set(topic, group, mode, share)
        if self._modes.file is not None:
            await self._modes.file.saved()
        return request.answer(0)

    async def query(self, connection: Connection, request: Command) -> Command:
        wanted = body_object(request)
        topic, group = str(wanted.get("topic") or ""), str(wanted.get("consumerGroup") or "")
        mode, share = self._modes.find(topic, group)
        found = await self._places(topic, group, wanted, mode, share)
        if found is None:
            return json_answer(request, {})
        places = [
            {"brokerName": name, "queueId": queue, "topic": topic} for name, queue in dict.fromkeys(found)
        ]
        return json_answer(
            request, {"messageQueueAssignments": [{"messageQueue": place, "mode": mode} for place in places]}
        )

    async def _places(
        self, name: str, group: str, wanted: dict[str, Any], mode: str, share: int
    ) -> list[Place] | None:
        """The client's queues; None when the client is to keep what it has.

        A client asks one of the brokers that have the topic, whichever, and takes the answer for all.
        """
        topic = self._broker.topics.find(name)
        if topic is None:
            return None
        places = await self._broker.routes.queues(name, topic.read_queue_nums)
        model = wanted.get("messageModel") or CLUSTERING
        if model == BROADCASTING:
            return places
        consumers = self._broker.consumers.find(group)
        strategy = STRATEGIES.get(str(wanted.get("strategyName")))
        if consumers is None or strategy is None or model != CLUSTERING:
            return None
        if mode == POP and share <= 0:
            return [(broker, -1) for broker, _ in places]
        clients = sorted(consumers.client_ids)
        client_id = str(wanted.get("clientId") or "")
        if client_id not in clients or not places:
            return []
        index = clients.index(client_id)
        if mode != POP:
            return [places[each] for each in strategy(range(len(places)), len(clients), index)]
        if len(clients) > len(places):
            return [places[index % len(places)]]
        shared = [(index + step) % len(clients) for step in range(min(share, len(clients)) + 1)]
        return [
            places[each] for sharer in shared for each in strategy(range(len(places)), len(clients), sharer)
        ]


def by_average(queues: Sequence[int], clients: int, index: int) -> Sequence[int]:
    """Neighbouring queues to one client."""
    rest = len(queues) % clients
    size = 1 if len(queues) <= clients else len(queues) // clients + (rest > 0 and index < rest)
    start = index * size if rest > 0 and index < rest else index * size + rest
    return queues[start : start + size]


def by_circle(queues: Sequence[int], clients: int, index: int) -> Sequence[int]:
    """Each next queue to the next client."""
    return queues[index::clients]


STRATEGIES = {"AVG": by_average, "AVG_BY_CIRCLE": by_circle}
