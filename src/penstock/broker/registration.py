"""Telling name servers what this broker has: the one inside the process, and RocketMQ's (protocol 2.4)."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.broker.topics import TopicConfig, Topics
from penstock.config import BrokerConfig
from penstock.errors import ConfigError, RemotingError
from penstock.namesrv.routes import NameServer
from penstock.remoting import Command, RemotingClient, RequestCode
from penstock.remoting.client import split_address
from penstock.remoting.signing import Credentials, signer
from penstock.remoting.tlscontext import client_context

log = logging.getLogger("penstock.broker")

# RocketMQ's periods: the second registration soon after the first, then twice a minute.
FIRST_SECONDS, PERIOD_SECONDS = 10.0, 30.0
RETRY_SECONDS = 1.0
CALL_SECONDS = 3.0
MASTER = 0

_encode = msgspec.json.Encoder().encode


class Registration:
    """Keeps the routes of one broker up to date, from ``start`` to ``stop``."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        address: str,
        *,
        embedded: NameServer | None = None,
        client: RemotingClient | None = None,
    ) -> None:
        """``embedded`` is the name server of this process; ``config.namesrv_addresses`` are the others.

        ``client`` speaks to these, and is closed at the stop.
        """
        self._config = config
        self._topics = topics
        self._address = address
        self._embedded = embedded
        self._client = client or name_server_client(config)
        self._tasks: list[asyncio.Task[None]] = []
        # Per name server: topics that changed since it last took a registration, and the alarm for its task.
        self._changed: dict[str, set[str]] = {}
        self._alarms: dict[str, asyncio.Event] = {}

    def start(self) -> None:
        """Register everywhere. Returns at once; a name server that is not there yet is tried again."""
        self._topics.on_change.append(self._topic_changed)
        if self._embedded is not None:
            self._register_here(self._topics)
        for server in self._config.namesrv_addresses:
            self._changed[server] = set()
            self._alarms[server] = asyncio.Event()
            self._tasks.append(asyncio.get_running_loop().create_task(self._keep_registered(server)))

    async def stop(self) -> None:
        """Leave the routes: clients stop asking for this broker before it stops answering."""
        if self._topic_changed in self._topics.on_change:
            self._topics.on_change.remove(self._topic_changed)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._embedded is not None:
            self._embedded.unregister(
                cluster=self._config.cluster_name,
                name=self._config.broker_name,
                address=self._address,
                broker_id=MASTER,
            )
        await asyncio.gather(*(self._leave(server) for server in self._config.namesrv_addresses))
        await self._client.close()

    def settings_changed(self, config: BrokerConfig) -> None:
        """Say everything again: the broker's permission is part of each topic's."""
        self._config = config
        if self._embedded is not None:
            self._register_here(self._topics)
        for server, changed in self._changed.items():
            changed.update(topic.name for topic in self._topics)
            self._alarms[server].set()

    # -- the name server of this process ------------------------------------------------------------------

    def _register_here(self, topics: Iterable[TopicConfig]) -> None:
        assert self._embedded is not None
        self._embedded.register(
            cluster=self._config.cluster_name,
            name=self._config.broker_name,
            address=self._address,
            topics=self._table(topics),
            version=self._topics.version,
            ha_address=self._ha_address,
            expiry_ms=None,
        )

    def _topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        if self._embedded is not None:
            if topic is None:
                self._embedded.delete_topic(name, name=self._config.broker_name)
            else:
                self._register_here([topic])
        if topic is not None:
            for server, changed in self._changed.items():
                changed.add(name)
                self._alarms[server].set()

    # -- the others ---------------------------------------------------------------------------------------

    async def _keep_registered(self, server: str) -> None:
        whole, wait = True, FIRST_SECONDS
        while True:
            changed, alarm = self._changed[server], self._alarms[server]
            alarm.clear()
            some = [topic for topic in self._topics if whole or topic.name in changed]
            changed.clear()
            if await self._register(server, some):
                pause, whole = wait, False
            else:
                # It may be a new process that knows nothing of us: the next one says everything.
                pause, whole = RETRY_SECONDS, True
            try:
                await asyncio.wait_for(alarm.wait(), pause)
            except TimeoutError:
                whole, wait = True, PERIOD_SECONDS

    async def _register(self, server: str, topics: Iterable[TopicConfig]) -> bool:
        wrapper = {
            "dataVersion": self._topics.version.to_json(),
            "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
            "topicConfigTable": self._table(topics),
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        body = _encode({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
        fields = self._identity | {
            "haServerAddr": self._ha_address,
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        return await self._tell(server, Command.request(RequestCode.REGISTER_BROKER, fields, body))

    async def _leave(self, server: str) -> None:
        await self._tell(server, Command.request(RequestCode.UNREGISTER_BROKER, self._identity))

    async def _tell(self, server: str, command: Command) -> bool:
        try:
            answer = await self._client.call(server, command, CALL_SECONDS)
        except RemotingError as error:
            log.warning("name server %s: %s", server, error)
            return False
        if answer.code:
            log.warning("name server %s refuses with %d: %s", server, answer.code, answer.remark)
        return answer.code == 0

    @property
    def _identity(self) -> dict[str, str]:
        return {
            "brokerName": self._config.broker_name,
            "brokerAddr": self._address,
            "clusterName": self._config.cluster_name,
            "brokerId": str(MASTER),
        }

    @property
    def _ha_address(self) -> str:
        host, port = split_address(self._address)
        return f"[{host}]:{port + 1}" if ":" in host else f"{host}:{port + 1}"

    def _table(self, topics: Iterable[TopicConfig]) -> dict[str, dict[str, Any]]:
        """Topics as registered: a broker that may not be written to says so of each."""
        mask = self._config.broker_permission | ~6
        return {topic.name: topic.to_json() | {"perm": topic.perm & mask} for topic in topics}


def name_server_client(config: BrokerConfig) -> RemotingClient:
    """Speaks to name servers, with TLS and signed where the settings say so."""
    tls = None if config.client_tls is None else client_context(config.client_tls)
    credentials = inner_credentials(config.inner_client_authentication_credentials)
    return RemotingClient(
        settings=config.remoting, tls=tls, sign=None if credentials is None else signer(credentials)
    )


def inner_credentials(text: str) -> Credentials | None:
    """The broker's own account, in the form that RocketMQ's setting has. Raises ConfigError."""
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
        return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken", ""))
    except (msgspec.MsgspecError, KeyError):
        key = "inner_client_authentication_credentials"
        raise ConfigError(
            f"{key} is not understood", key=key, hint='{"accessKey": "…", "secretKey": "…"}'
        ) from None
