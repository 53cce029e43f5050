"""Asking name servers: one answers for all, the next when it does not."""

from __future__ import annotations

from penstock.client.errors import RouteNotFound, refusal
from penstock.client.route import ClusterData, TopicRoute
from penstock.client.wirejson import decode, decode_any
from penstock.errors import ConnectionLost, RemotingTimeout
from penstock.message.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from penstock.remoting import Command, RemotingClient, RequestCode, ResponseCode


class NameServers:
    """The name servers of one cluster. Stays with the one that answered last."""

    def __init__(self, addresses: tuple[str, ...], remoting: RemotingClient, timeout: float) -> None:
        self.addresses = addresses
        self._remoting = remoting
        self._timeout = timeout
        self._preferred = 0

    async def call(
        self, code: int, fields: dict[str, str] | None = None, *, also: tuple[int, ...] = ()
    ) -> Command:
        """The answer of whichever server answers first; codes other than success and ``also`` are raised."""
        last: Exception | None = None
        for turn in range(len(self.addresses)):
            number = (self._preferred + turn) % len(self.addresses)
            address = self.addresses[number]
            try:
                answer = await self._remoting.call(address, Command.request(code, fields), self._timeout)
            except (ConnectionLost, RemotingTimeout) as error:
                last = error
                continue
            self._preferred = number
            if answer.code != ResponseCode.SUCCESS and answer.code not in also:
                raise refusal(answer, address)
            return answer
        assert last is not None
        raise last

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic; RouteNotFound when nobody serves it."""
        absent = (ResponseCode.TOPIC_NOT_EXIST,)
        answer = await self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, also=absent)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            raise RouteNotFound(
                f"no broker serves topic {topic!r}",
                hint=f"create it: penstock topic create {topic} --namesrv {self.addresses[self._preferred]}",
            )
        return TopicRoute.parse(topic, answer.body)

    async def route_for_publishing(self, topic: str, queues: int) -> TopicRoute:
        """As ``route``; a topic that is not there yet borrows from the one that brokers make topics after."""
        try:
            return await self.route(topic)
        except RouteNotFound as missing:
            try:
                template = await self.route(AUTO_CREATE_TOPIC_KEY_TOPIC)
            except RouteNotFound:
                raise missing from None
            return template.lent_to(topic, queues)

    async def cluster(self) -> ClusterData:
        """Every broker there is."""
        answer = await self.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode(answer.body, ClusterData)

    async def topics(self) -> list[str]:
        """Every topic there is, system topics included."""
        answer = await self.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(str(name) for name in decode_any(answer.body).get("topicList") or [])
