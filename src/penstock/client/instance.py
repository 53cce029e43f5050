"""What a producer or consumer shares with nobody: its identity, connections, routes and heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from penstock.client.clientid import client_id
from penstock.client.errors import BrokerNotFound, ClientClosed, RouteNotFound, refusal
from penstock.client.identity import credentials_of_environment, tls_of_environment
from penstock.client.nameservers import NameServers
from penstock.client.periodic import Periodic
from penstock.client.route import MASTER_ID, TopicRoute
from penstock.client.settings import ClientSettings, name_servers
from penstock.client.wirejson import encode
from penstock.config.remoting import RemotingSettings
from penstock.errors import PenstockError, RemotingTimeout
from penstock.remoting import Command, Connection, Handler, RemotingClient, RequestCode
from penstock.remoting.signing import signer
from penstock.remoting.tlscontext import client_context

log = logging.getLogger("penstock.client")


class Registered(Protocol):
    """What an instance asks of the producer or consumer that it serves."""

    def producer_data(self) -> list[dict[str, Any]]: ...

    def consumer_data(self) -> list[dict[str, Any]]: ...

    def unregistrations(self) -> Iterable[dict[str, str]]: ...


class ClientInstance:
    """Connections to name servers and brokers, routes that are kept fresh, heartbeats that keep us known.

    ``start`` and ``close`` frame its life. Everything runs on one loop.
    """

    def __init__(
        self,
        namesrv: str | list[str] | tuple[str, ...] | None,
        settings: ClientSettings | None = None,
        *,
        instance_name: str | None = None,
        handlers: dict[int, Handler] | None = None,
        on_route: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings or ClientSettings()
        self.client_id = client_id(instance_name)
        self.addresses = name_servers(namesrv)
        self.routes: dict[str, TopicRoute] = {}
        self.registered: Registered | None = None
        self.started = False
        self.closed = False
        credentials = self.settings.credentials or credentials_of_environment()
        self.sign = None if credentials is None else signer(credentials)
        """Signs a request, where we have an account."""
        self._handlers = handlers or {}
        self._on_route = on_route
        # Topics to keep routes of. The value says whether the topic may be borrowed for.
        self._wanted: dict[str, bool] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute]] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._periodic: list[Periodic] = []
        self._remoting: RemotingClient | None = None
        self._name_servers: NameServers | None = None

    # -- life ---------------------------------------------------------------------------------------------

    async def start(self, registered: Registered | None = None) -> None:
        """Ready for calls. Nothing is connected before it is needed."""
        if self.started:
            raise ClientClosed("a client starts once", hint="make a new one")
        self.started = True
        self.registered = registered
        settings = self.settings
        remoting = RemotingSettings(
            call_timeout_seconds=settings.call_timeout, connect_timeout_seconds=settings.call_timeout
        )
        tls = settings.tls or tls_of_environment()
        context = None if tls is None else client_context(tls)
        self._remoting = RemotingClient(self._handlers, remoting, tls=context, sign=self.sign)
        self._name_servers = NameServers(self.addresses, self._remoting, settings.call_timeout)
        if registered is not None:
            self._periodic = [
                Periodic(
                    "routes", settings.route_interval, self._refresh_routes, delay=settings.route_interval
                ),
                Periodic(
                    "heartbeat",
                    settings.heartbeat_interval,
                    self.heartbeat,
                    delay=settings.heartbeat_interval,
                ),
            ]

    async def close(self) -> None:
        """Take leave of the brokers and close the connections, within ``close_timeout``."""
        if self.closed:
            return
        self.closed = True
        for periodic in self._periodic:
            await periodic.stop()
        for task in list(self._asking.values()):
            task.cancel()
        if self._remoting is None:
            return
        if self.registered is not None:
            leaving = [
                self._unregister(connection, dict(fields))
                for connection in list(self._remoting.connections.values())
                if not connection.closed and "greeting" in connection.context
                for fields in self.registered.unregistrations()
            ]
            await asyncio.gather(*leaving, return_exceptions=True)
        await self._remoting.close()

    async def _unregister(self, connection: Connection, fields: dict[str, str]) -> None:
        fields["clientID"] = self.client_id
        request = Command.request(RequestCode.UNREGISTER_CLIENT, fields)
        await connection.call(request, min(self.settings.call_timeout, self.settings.close_timeout))

    def require_open(self) -> None:
        """ClientClosed before the start and after the close."""
        if not self.started or self.closed:
            raise self._unusable()

    # -- routes -------------------------------------------------------------------------------------------

    @property
    def name_servers(self) -> NameServers:
        if self._name_servers is None or self.closed:
            raise self._unusable()
        return self._name_servers

    async def route(self, topic: str, *, publish: bool = False) -> TopicRoute:
        """The route of a topic, known or asked for, and kept fresh from now on. Raises RouteNotFound."""
        known = self.routes.get(topic)
        if known is not None:
            return known
        self._wanted[topic] = publish or self._wanted.get(topic, False)
        return await self.ask_route(topic)

    async def ask_route(self, topic: str) -> TopicRoute:
        """Ask the name servers, whatever is known. Many who ask at once share one request."""
        servers = self.name_servers
        task = self._asking.get(topic)
        if task is None:
            if self._wanted.get(topic):
                work = servers.route_for_publishing(topic, self.settings.default_queues)
            else:
                work = servers.route(topic)
            task = asyncio.get_running_loop().create_task(self._take_route(topic, work))
            self._asking[topic] = task
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
            # Whoever asked may have given up: then nobody else looks at how it ended.
            task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if task.cancelled() and current is not None and not current.cancelling():
                raise self._unusable() from None  # the close ended the request, nobody ended us
            raise

    async def _take_route(self, topic: str, work: Any) -> TopicRoute:
        route: TopicRoute = await work
        known = self.routes.get(topic)
        self._brokers.update(route.addresses)
        if known is not None and route.template and not known.template:
            return known  # a topic that was there can't be borrowed for: the answer is that it is gone
        if known == route:
            return known
        self.routes[topic] = route
        if self._on_route is not None:
            self._on_route(topic)
        return route

    def learn(self, route: TopicRoute) -> None:
        """Take the addresses of brokers from a route that somebody asked for."""
        self._brokers.update(route.addresses)

    def forget_routes(self, topics: Iterable[str]) -> None:
        """Stop keeping routes of these topics."""
        for topic in topics:
            self._wanted.pop(topic, None)
            self.routes.pop(topic, None)

    async def _refresh_routes(self) -> None:
        for topic in list(self._wanted):
            try:
                await self.ask_route(topic)
            except RouteNotFound:
                log.debug("no route for %s; what was known stays", topic)

    # -- brokers ------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> Mapping[str, dict[int, str]]:
        """Addresses by broker name and id, of all routes that were asked for."""
        return self._brokers

    def broker_address(self, name: str, broker_id: int = MASTER_ID) -> str:
        """The address of a broker by its name; any of its addresses when it has none of that id."""
        known = self._brokers.get(name)
        if not known:
            raise BrokerNotFound(f"no address is known for broker {name!r}")
        return known.get(broker_id) or next(iter(known.values()))

    async def connection(self, address: str) -> Connection:
        """A live connection on which the broker has heard of us."""
        if self._remoting is None or self.closed:
            raise self._unusable()
        connection = self._remoting.connections.get(address)
        if connection is None or connection.closed:
            connection = await self._remoting.connect(address, self.settings.call_timeout)
        if self.registered is not None:
            greeting = connection.context.get("greeting")
            if greeting is None:
                greeting = asyncio.get_running_loop().create_task(self._greet(connection))
                connection.context["greeting"] = greeting
            if not greeting.done():
                await asyncio.shield(greeting)
        return connection

    def ready_connection(self, address: str) -> Connection | None:
        """The connection if it can be used right now, without waiting for anything."""
        if self._remoting is None or self.closed:
            raise self._unusable()
        connection = self._remoting.connections.get(address)
        if connection is None or connection.closed:
            return None
        if self.registered is not None:
            greeting = connection.context.get("greeting")
            if greeting is None or not greeting.done():
                return None
        return connection

    async def call(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        also: tuple[int, ...] = (),
    ) -> Command:
        """A broker's answer; codes other than success and ``also`` are raised as their errors."""
        limit = self.settings.call_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit + self.settings.call_timeout):
                connection = await self.connection(address)
                answer = await connection.call(Command.request(code, fields, body), limit)
        except TimeoutError:
            raise RemotingTimeout(f"{address} did not answer request {code} within {limit:g} s") from None
        if answer.code and answer.code not in also:
            raise refusal(answer, address)
        return answer

    async def oneway(
        self, address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send and expect nothing."""
        connection = await self.connection(address)
        connection.send(Command.request(code, fields, body, oneway=True))

    # -- heartbeats ---------------------------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """Tell every broker of our routes who we are. One that does not answer is told again next time."""
        if self.registered is None or self._remoting is None or self.closed:
            return
        every_id = bool(self.registered.consumer_data())
        known: set[str] = set()
        for route in self.routes.values():
            for by_id in route.addresses.values():
                known.update(address for number, address in by_id.items() if every_id or number == MASTER_ID)
        await asyncio.gather(*(self._heartbeat_to(address) for address in known))

    async def _heartbeat_to(self, address: str) -> None:
        try:
            connection = await self.connection(address)
            await connection.call(self._heartbeat(), self.settings.call_timeout)
        except PenstockError as error:
            log.info("heartbeat to %s: %s", address, error)

    async def _greet(self, connection: Connection) -> None:
        try:
            await connection.call(self._heartbeat(), self.settings.call_timeout)
        except PenstockError as error:
            log.info("first heartbeat to %s: %s", connection.peer_text, error)

    def _heartbeat(self) -> Command:
        assert self.registered is not None
        data = {
            "clientID": self.client_id,
            "consumerDataSet": self.registered.consumer_data(),
            "heartbeatFingerprint": 0,
            "producerDataSet": self.registered.producer_data(),
            "withoutSub": False,
        }
        return Command.request(RequestCode.HEART_BEAT, {}, encode(data))

    def _unusable(self) -> ClientClosed:
        if self.closed:
            return ClientClosed("the client is closed")
        return ClientClosed("the client is not started", hint="use it in `async with`, or await start()")
