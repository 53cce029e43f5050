"""A broker: one store, one port, one event loop; its parts and its life."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePath
from types import TracebackType
from typing import Any

from penstock.broker.accountadmin import AccountAdmin
from penstock.broker.acks import Acknowledgements, Done
from penstock.broker.admin import Admin
from penstock.broker.clients import Clients
from penstock.broker.consumers import Consumers
from penstock.broker.deletedtopics import DeletedTopics
from penstock.broker.dispatching import Dispatching
from penstock.broker.filterdata import ConsumerFilters, consumer_filters
from penstock.broker.groups import Groups
from penstock.broker.holding import Holding
from penstock.broker.housekeeping import Housekeeping
from penstock.broker.http import HttpPort
from penstock.broker.locks import QueueLocks
from penstock.broker.offsets import Offsets
from penstock.broker.permissions import permissions
from penstock.broker.popassign import Assignment, RequestModes
from penstock.broker.poporder import PopOrder
from penstock.broker.popping import Popping
from penstock.broker.producers import Producers
from penstock.broker.pulling import Pulling
from penstock.broker.recalling import Recalling
from penstock.broker.registration import Registration, name_server_client
from penstock.broker.replying import Replying
from penstock.broker.resets import PendingResets
from penstock.broker.sendback import SendBack
from penstock.broker.sending import Sending
from penstock.broker.statefile import StateFile, Table, follow
from penstock.broker.stats import BrokerStats
from penstock.broker.topicroutes import TopicRoutes
from penstock.broker.topics import PERM_WRITE, Topics
from penstock.broker.transactions import Transactions
from penstock.clock import Clock, SystemClock
from penstock.config import BrokerConfig
from penstock.errors import UsageError
from penstock.namesrv import NameServer, NameServerService
from penstock.namesrv import handlers as name_server_handlers
from penstock.namesrv.permissions import permissions as name_server_permissions
from penstock.remoting import Connection, Handler, RemotingServer
from penstock.security.guard import Guard
from penstock.store.consumeroffset import ConsumerOffsets
from penstock.store.messagestore import MessageStore
from penstock.store.opening import open_writable

log = logging.getLogger("penstock.broker")

SWITCH_SECONDS = 0.0005
"""Threads that compute must not keep the interpreter from the loop for longer (design decision 10)."""


class Broker:
    """Serves RocketMQ's clients from a store directory. An async context manager; everything is on its loop.

    After ``start`` the parts are there as attributes. ``handlers`` is the one table of requests, the embedded
    name server's included.
    """

    store: MessageStore
    topics: Topics
    groups: Groups
    consumers: Consumers
    producers: Producers
    locks: QueueLocks
    holding: Holding
    dispatching: Dispatching
    acks: Acknowledgements
    sending: Sending
    filters: ConsumerFilters
    pulling: Pulling
    popping: Popping
    transactions: Transactions
    clients: Clients
    routes: TopicRoutes
    admin: Admin
    now: Callable[[], float]
    """Seconds of the loop's clock, which never goes back."""
    deleted_topics: DeletedTopics

    def __init__(self, config: BrokerConfig | None = None, *, clock: Clock | None = None) -> None:
        self.config = config or BrokerConfig()
        self.clock: Clock = clock or SystemClock()
        self.stats = BrokerStats()
        self.resets = PendingResets()
        self.pull_offsets: dict[tuple[str, str, int], int] = {}
        """By topic, group and queue: where each group's next pull will begin. For monitoring only."""
        self.handlers: dict[int, Handler] = {}
        self.started_ms = 0
        self.draining = False
        self.closed_for_sends = False
        self._server: RemotingServer | None = None
        self._host = self.config.advertised_host
        self._port = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writer: ThreadPoolExecutor | None = None
        self._state_files: list[StateFile] = []
        self._housekeeping: Housekeeping | None = None
        self.name_server = NameServer(self.clock) if self.config.namesrv_embedded else None
        self._name_service: NameServerService | None = None
        self._registration: Registration | None = None
        self._http: HttpPort | None = None
        self._guard: Guard | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, load what earlier runs left, then listen. Until then connections are refused."""
        if self._server is not None:
            raise UsageError("this broker runs already")
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        config = self.config
        self._host = own_address() if self._host in ("0.0.0.0", "::") else self._host
        self._guard = Guard(config.security, permissions(self) | name_server_permissions())
        # Message ids carry the port, so it is known before the store is opened.
        with reserved_port(config.listen_host, config.listen_port) as self._port:
            await self._open_and_listen()
        self.started_ms = self.clock.now_ms()
        log.info("broker %s listens on %s", config.broker_name, self.address)

    async def _open_and_listen(self) -> None:
        config = self.config
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="penstock-state")
        loop = asyncio.get_running_loop()
        try:
            self.store = await loop.run_in_executor(self._writer, self._open_store)
        except BaseException:
            self._writer.shutdown()
            raise
        try:
            self._assemble()
            if self.deleted_topics.file is not None:
                await self.deleted_topics.file.saved()  # before a message comes to a place it speaks of
            guard = self._guard
            assert guard is not None
            served = guard.before(self.handlers)
            limits = config.server_limits
            self._server = RemotingServer(served, limits, on_close=self._lost, tls=guard.tls)
            guard.start()
            # The broker's port is what people wait for: behind it everything is there already.
            await self._open_name_server()
            await self._server.start(config.listen_host, self._port)
            self._join_routes()
            if config.http_port >= 0:
                self._http = HttpPort(self)
                await self._http.start(config.listen_host, config.http_port)
        except BaseException:
            await self._abandon()
            raise

    async def _open_name_server(self) -> None:
        config = self.config
        if self.name_server is not None:
            self._name_service = NameServerService(self.name_server, config.server_limits, self._guard)
            await self._name_service.start(config.listen_host, config.namesrv_port)

    def _join_routes(self) -> None:
        """Be found: by the name server in this process, and by those the settings name."""
        self._registration = Registration(
            self.config, self.topics, self.address, embedded=self.name_server, client=self._to_name_servers
        )
        self._registration.start()

    async def _leave_routes(self) -> None:
        if self._registration is not None:
            await self._registration.stop()
            self._registration = None

    async def _stop_side_ports(self) -> None:
        if self._guard is not None:
            await self._guard.stop()
        if self._http is not None:
            await self._http.stop()
            self._http = None
        if self._name_service is not None:
            await self._name_service.stop()
            self._name_service = None

    def _open_store(self) -> MessageStore:
        settings = self.config.store.replace(store_host=self.address)
        store = open_writable(self.config.store_path, config=settings, clock=self.clock)
        store.dispatch_by_hand()
        if settings.timer_wheel_enable:
            # Now: its files are not to be opened on the loop, by the first message that has a time.
            _ = store.schedules.timer
        return store

    def _assemble(self) -> None:
        config, store = self.config, self.store
        loop = self._loop = asyncio.get_running_loop()
        self.now = loop.time
        self.topics = Topics(config, self.clock)
        light = store.config.enable_lmq
        self.groups = Groups(auto_create=config.auto_create_subscription_group, clock=self.clock, light=light)
        self._follow("topics.json", self.topics)
        self._follow("subscriptionGroup.json", self.groups)
        self.deleted_topics = DeletedTopics()
        self._follow("deletedTopics.json", self.deleted_topics)
        self.deleted_topics.settle(store)
        if self.name_server is not None:
            self._follow("kvConfig.json", self.name_server.kv)
        self.topics.add_boot_topics(
            len(store.config.delay_levels_ms), self.deleted_topics.others(store.queues())
        )
        self.groups.add_boot_groups()
        self.clients = Clients(self)
        self.consumers = Consumers(loop.time, self.clients.notify)
        self.producers = Producers(loop.time)
        self.locks = QueueLocks(config.rebalance_lock_max_live_time_ms / 1000, loop.time)
        self.filters = consumer_filters(self)
        self._follow("consumerFilter.json", self.filters)
        self.pulling = Pulling(self)
        self.dispatching = Dispatching(store, on_arrival=self._arrived)
        self.holding = Holding(store, loop.time, self.pulling.run_again, self.dispatching.wait_for_messages)
        timeout = store.config.sync_flush_timeout_ms / 1000
        self.acks = Acknowledgements(
            store.flusher, timeout, on_flushed=self.dispatching.advance, on_failure=store.sync_failed
        )
        if store.config.timer_wheel_enable:
            store.schedules.timer.on_delivered = self._timers_fired
            store.schedules.timer.gentle = True
        self.sending = Sending(self)
        self.transactions = Transactions(self)
        order, modes = PopOrder(self.clock), RequestModes()
        self._follow("consumerOrderInfo.json", order)
        self._follow("messageRequestMode.json", modes)
        self.popping = Popping(self, order)
        self._to_name_servers = name_server_client(config)
        self.routes = TopicRoutes(config, self._to_name_servers, loop.time, self.name_server)
        self.closed_for_sends = closed_for_sends(config)
        parts = (
            *(self.popping, Assignment(self, modes)),
            *(self.sending, self.pulling, self.clients, self.transactions),
            *(Offsets(self), SendBack(self), Replying(self), Recalling(self)),
        )
        for part in parts:
            self.add_handlers(part.handlers())
        self.admin = Admin(self)
        self.add_handlers(self.admin.handlers())
        if self.name_server is not None:
            # The codes are disjoint: a client that knows one port only is served there.
            self.add_handlers(name_server_handlers(self.name_server))
        if self._guard is not None and self._guard.source is not None:
            self.add_handlers(AccountAdmin(self._guard.accounts).handlers())
        self._housekeeping = Housekeeping(self)

    def add_handlers(self, handlers: dict[int, Handler]) -> None:
        """Serve these requests too. A code has one handler."""
        for code, handler in handlers.items():
            if code in self.handlers:
                raise UsageError(f"request {int(code)} has a handler already")
            self.handlers[int(code)] = handler

    def _follow(self, name: str, table: Table) -> None:
        """Load a table from its file and keep the file up to date."""
        assert self._writer is not None
        path = str(PurePath(self.store.path) / "config" / name)
        self._state_files.append(follow(table, self.store.storage, path, self._writer))

    async def stop(self) -> None:
        """Answer what is owed, flush everything, leave the directory clean. May be called twice.

        Raises FlushFailed when a sync failed meanwhile: what was not acknowledged may be lost.
        """
        if self._server is None:
            return
        await self._leave_routes()
        self.draining = True  # not before: a pull that is not held comes again at once
        self.holding.release_all()
        self.popping.release_all()
        await self._server.drain(self.config.drain_timeout_ms / 1000)
        await self._server.stop()
        await self._stop_side_ports()
        self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._release_loop()
        for file in self._state_files:
            await file.close()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._close_store)
        finally:
            if self._writer is not None:
                self._writer.shutdown()
        if self.store.failure is not None:
            raise self.store.failure

    def _close_store(self) -> None:
        try:
            self.transactions.stop()
        finally:
            self.store.close()

    async def _abandon(self) -> None:
        """Give up a start that failed."""
        await self._leave_routes()
        if self._server is not None:
            await self._server.stop()
        await self._stop_side_ports()
        self._server = None
        self._release_loop()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, self.store.close)
        if self._writer is not None:
            self._writer.shutdown()

    def _timers_fired(self) -> None:
        """Called on the timer's thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.dispatching.advance)

    def _release_loop(self) -> None:
        self._loop = None
        if self._housekeeping is not None:
            self._housekeeping.close()
        for part in (getattr(self, name, None) for name in ("dispatching", "acks", "admin", "pulling")):
            if part is not None:
                part.close()

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- what the parts use -------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where clients reach this broker."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    @property
    def namesrv_address(self) -> str:
        """Where clients ask for routes: the name server of this process, or the ones it registers with."""
        if self._name_service is not None:
            port = self._name_service.address.rpartition(":")[2]
            return f"{self.address.rpartition(':')[0]}:{port}"
        return self.config.namesrv_addr

    @property
    def http_address(self) -> str | None:
        """Where the page with health and metrics is; None when there is none."""
        if self._http is None:
            return None
        return f"http://{self.address.rpartition(':')[0]}:{self._http.port}/"

    @property
    def connections(self) -> list[Connection]:
        """The clients that are connected now."""
        return [] if self._server is None else list(self._server.connections)

    @property
    def connection_count(self) -> int:
        return 0 if self._server is None else len(self._server.connections)

    def faults(self) -> list[str]:
        """What keeps the broker from doing its work now, for people; empty when nothing does."""
        found = [self.store.failure, self.dispatching.failure]
        return [
            *(str(fault) for fault in found if fault is not None),
            *(["stopping"] if self.draining else []),
        ]

    @property
    def consumer_offsets(self) -> ConsumerOffsets:
        """How far each group has consumed each queue."""
        offsets: ConsumerOffsets = self.store.consumer_offsets
        return offsets

    def apply_settings(self, config: BrokerConfig) -> None:
        """Go on with other settings: those that an operator may change while the broker runs."""
        self.config = config
        self.closed_for_sends = closed_for_sends(config)
        self.topics.auto_create = config.auto_create_topic_enable
        self.groups.auto_create = config.auto_create_subscription_group
        self.sending.settings_changed()
        if self._registration is not None:
            self._registration.settings_changed(config)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group says how far it is. A negative offset says nothing: Go's client sends -1 at first."""
        if offset >= 0 and queue_id >= 0:
            self.consumer_offsets.commit(group, topic, queue_id, offset)

    def born_host(self, connection: Connection) -> str:
        """Address and port of a client, as records keep it."""
        known = connection.context.get("born_host")
        if known is None:
            known = connection.context["born_host"] = host_text(*connection.peer)
        return str(known)

    def when_durable(self, end_offset: int, done: Done) -> None:
        """Call ``done`` when the log is on disk so far; at once if the store does not promise that."""
        if self.store.config.flush_disk_type == "sync":
            self.acks.add(end_offset, done)
        else:
            done(None)

    async def durable(self, end_offset: int) -> None:
        """As ``when_durable``, to be awaited; OSError when it will not be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: OSError | None) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        self.when_durable(end_offset, done)
        await future

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside the requests; it ends with the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def write_beside(self, work: Callable[[], object]) -> asyncio.Future[object]:
        """Run something that waits for the disk on the thread that writes the broker's files."""
        assert self._writer is not None
        return asyncio.get_running_loop().run_in_executor(self._writer, work)

    def _arrived(self, keys: set[tuple[str, int]] | None) -> None:
        self.holding.arrived(keys)
        self.popping.holding.arrived(keys)

    def _lost(self, connection: Connection, reason: str) -> None:
        if self.name_server is not None:
            self.name_server.lost(connection)
        self.holding.lost(connection)
        self.popping.lost(connection)
        self.consumers.lost(connection)
        self.producers.lost(connection)


def closed_for_sends(config: BrokerConfig) -> bool:
    """Whether every send has to be looked at closely, because the broker may refuse it."""
    return bool(config.start_accept_send_request_ms or not config.broker_permission & PERM_WRITE)


def host_text(host: str, port: int) -> str:
    """``1.2.3.4:5`` or ``[::1]:5``; an IPv4 address that arrived as IPv6 is the IPv4 one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return f"[{address}]:{port}"
        address = address.ipv4_mapped
    return f"{address}:{port}"


def own_address() -> str:
    """This machine's address as others reach it, as far as it can be told; else loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only asks for the way there
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@contextmanager
def reserved_port(host: str, port: int) -> Iterator[int]:
    """The port, or for 0 a free one, which nobody else is given while the context lasts."""
    if port:
        yield port
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as reserved:
        # Bound but not listening: a second socket with this option may listen there, nobody else is given it.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
        yield int(reserved.getsockname()[1])
