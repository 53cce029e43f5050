"""The requests a name server answers (protocol 2.1)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock.config.properties import parse_properties
from penstock.errors import RequestRefused
from penstock.format.javajson import JsonError, parse
from penstock.namesrv.registration import read_registration
from penstock.namesrv.routes import DEFAULT_EXPIRY_MS, NameServer
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.store.dataversion import DataVersion

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2
# Settings that a remote request may not touch: they name files (CVE-2023-37582).
FORBIDDEN = {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
MAX_KV_TEXT = 1 << 16

_encode = msgspec.json.Encoder().encode
_Simple = Callable[[NameServer, Command], Command | Awaitable[Command | None]]


def handlers(name_server: NameServer) -> dict[int, Handler]:
    """The table of requests, to be served on a port of its own or on a broker's: the codes are disjoint."""

    def bind(answer: _Simple) -> Handler:
        return lambda connection, command: answer(name_server, command)

    table: dict[int, Handler] = {int(code): bind(answer) for code, answer in _ANSWERS.items()}
    table[RequestCode.REGISTER_BROKER] = lambda connection, command: _register(
        name_server, connection, command
    )
    return table


def required(command: Command, name: str) -> str:
    """A header field that must be there."""
    value = command.fields.get(name)
    if value is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the header field {name} is missing")
    return value


def number(command: Command, name: str, default: int) -> int:
    """A whole number of the header, or the default when it is absent."""
    text = command.fields.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name} is no number: {text[:40]}") from None
    if not -(2**63) <= value < 2**63:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name} is out of range")
    return value


def flag(command: Command, name: str) -> bool:
    return command.fields.get(name, "").lower() == "true"


def json_answer(command: Command, value: Any, fields: dict[str, str] | None = None) -> Command:
    """Success with a body of compact JSON."""
    return command.answer(fields=fields, body=_encode(value))


# -- brokers -----------------------------------------------------------------------------------------------


def _register(server: NameServer, connection: Connection, command: Command) -> Command:
    checksum = number(command, "bodyCrc32", 0)
    if checksum and checksum != zlib.crc32(command.body) & 0x7FFFFFFF:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    cluster, name = required(command, "clusterName"), required(command, "brokerName")
    broker_id = number(command, "brokerId", 0)
    body = read_registration(command.body)
    done = server.register(
        cluster=cluster,
        name=name,
        address=required(command, "brokerAddr"),
        broker_id=broker_id,
        topics=body.topics,
        version=body.version,
        ha_address=command.fields.get("haServerAddr", ""),
        expiry_ms=max(number(command, "heartbeatTimeoutMillis", DEFAULT_EXPIRY_MS), 1000),
        acting_master=flag(command, "enableActingMaster"),
        owner=connection,
    )
    if not done:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")
    fields: dict[str, str] = {}
    if broker_id != 0 and (master := server.master_of(cluster, name)) is not None:
        fields = {"masterAddr": master[0], "haServerAddr": master[1]}
    orders = server.kv.namespace(ORDER_TOPICS) if server.settings.orders_to_brokers else None
    return json_answer(command, {"table": orders}, fields) if orders else command.answer(fields=fields)


def _unregister(server: NameServer, command: Command) -> Command:
    server.unregister(
        cluster=required(command, "clusterName"),
        name=required(command, "brokerName"),
        address=required(command, "brokerAddr"),
        broker_id=number(command, "brokerId", 0),
    )
    return command.answer()


def _heartbeat(server: NameServer, command: Command) -> Command:
    server.heartbeat(cluster=required(command, "clusterName"), address=required(command, "brokerAddr"))
    return command.answer()


def _data_version(server: NameServer, command: Command) -> Command:
    cluster, address = required(command, "clusterName"), required(command, "brokerAddr")
    known = server.version_of(cluster, address)
    given = DataVersion.from_json(_parsed(command))
    server.heartbeat(cluster=cluster, address=address)
    changed = {"changed": "true" if known != given else "false"}
    return command.answer(fields=changed) if known is None else json_answer(command, known.to_json(), changed)


def _member_group(server: NameServer, command: Command) -> Command:
    name = required(command, "brokerName")
    broker = server.brokers().get(name)
    addresses = {} if broker is None else broker.to_json()["brokerAddrs"]
    group = {"brokerAddrs": addresses, "brokerName": name, "cluster": required(command, "clusterName")}
    return json_answer(command, {"brokerMemberGroup": group})


# -- routes ------------------------------------------------------------------------------------------------


def _route(server: NameServer, command: Command) -> Command:
    topic = command.fields.get("topic")
    found = None if topic is None else server.route(topic)
    if found is None:
        name = "null" if topic is None else topic
        remark = f"No topic route info in name server for the topic: {name}{FAQ}"
        return command.answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    if topic is not None and server.settings.orders_in_routes:
        order = server.kv.get(ORDER_TOPICS, topic)
        # Clients break on any other text.
        if order is not None and re.fullmatch(r"[^:;]+:\d{1,5}(;[^:;]+:\d{1,5})*", order):
            found["orderTopicConf"] = order
    return json_answer(command, found)


def _cluster_info(server: NameServer, command: Command) -> Command:
    brokers = {name: broker.to_json() for name, broker in server.brokers().items()}
    return json_answer(command, {"brokerAddrTable": brokers, "clusterAddrTable": server.clusters()})


def _all_topics(server: NameServer, command: Command) -> Command:
    if not server.settings.lists_topics:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")
    return json_answer(command, {"topicList": server.topic_names()})


def _topics_by_cluster(server: NameServer, command: Command) -> Command:
    return json_answer(command, {"topicList": server.topic_names(required(command, "cluster"))})


def _system_topics(server: NameServer, command: Command) -> Command:
    clusters, brokers = server.clusters(), server.brokers()
    body: dict[str, Any] = {"topicList": [*clusters, *brokers]}
    addresses = [address for broker in brokers.values() for address in broker.addresses.values()]
    return json_answer(command, {"brokerAddr": addresses[0], **body} if addresses else body)


def _unit_topics(server: NameServer, command: Command) -> Command:
    without = UNIT_FLAG if command.code == RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST else 0
    wanted = UNIT_FLAG if command.code == RequestCode.GET_UNIT_TOPIC_LIST else UNIT_SUB_FLAG
    return json_answer(command, {"topicList": server.unit_topics(wanted, without)})


def _delete_topic(server: NameServer, command: Command) -> Command:
    server.delete_topic(required(command, "topic"), command.fields.get("clusterName") or None)
    return command.answer()


def _add_topic(server: NameServer, command: Command) -> Command:
    queues = _parsed(command).get("queueDatas") or []
    server.add_topic(
        required(command, "topic"),
        {str(queue.get("brokerName")): queue for queue in queues if isinstance(queue, dict)},
    )
    return command.answer()


def _wipe_write_perm(server: NameServer, command: Command) -> Command:
    count = server.set_writable(required(command, "brokerName"), False)
    return command.answer(fields={"wipeTopicCount": str(count)})


def _add_write_perm(server: NameServer, command: Command) -> Command:
    count = server.set_writable(required(command, "brokerName"), True)
    return command.answer(fields={"addTopicCount": str(count)})


# -- key-value configuration -------------------------------------------------------------------------------


async def _put_kv(server: NameServer, command: Command) -> Command:
    namespace, key = command.fields.get("namespace"), command.fields.get("key")
    if namespace is None or key is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    value = required(command, "value")
    if len(namespace) + len(key) + len(value) > MAX_KV_TEXT:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"more than {MAX_KV_TEXT} characters")
    server.kv.put(namespace, key, value)
    await server.kv.saved()
    return command.answer()


def _get_kv(server: NameServer, command: Command) -> Command:
    namespace, key = required(command, "namespace"), required(command, "key")
    value = server.kv.get(namespace, key)
    if value is None:
        remark = f"No config item, Namespace: {namespace} Key: {key}"
        return command.answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)
    return command.answer(fields={"value": value})


async def _delete_kv(server: NameServer, command: Command) -> Command:
    server.kv.delete(required(command, "namespace"), required(command, "key"))
    await server.kv.saved()
    return command.answer()


def _list_kv(server: NameServer, command: Command) -> Command:
    namespace = required(command, "namespace")
    table = server.kv.namespace(namespace)
    if table is None:
        remark = f"No config item, Namespace: {namespace}"
        return command.answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)
    return json_answer(command, {"table": table})


# -- settings ----------------------------------------------------------------------------------------------


def _update_config(server: NameServer, command: Command) -> Command:
    """Only what is on the list may be set from afar, all of a request or nothing."""
    try:
        given = parse_properties(str(command.body, "utf-8"))
    except ValueError:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
    if FORBIDDEN & given.keys():
        raise RequestRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    try:
        server.settings.update(given)
    except ValueError as error:
        raise RequestRefused(ResponseCode.NO_PERMISSION, str(error)) from None
    return command.answer()


def _get_config(server: NameServer, command: Command) -> Command:
    lines = {"configBlackList": ";".join(sorted(FORBIDDEN)), **server.settings.lines()}
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    return command.answer(body=text.encode())


def _parsed(command: Command) -> dict[str, Any]:
    try:
        found = parse(str(command.body, "utf-8")) if command.body else {}
    except (JsonError, UnicodeDecodeError) as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body is no JSON object")
    return found


_ANSWERS: dict[RequestCode, _Simple] = {
    RequestCode.PUT_KV_CONFIG: _put_kv,
    RequestCode.GET_KV_CONFIG: _get_kv,
    RequestCode.DELETE_KV_CONFIG: _delete_kv,
    RequestCode.UNREGISTER_BROKER: _unregister,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _wipe_write_perm,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _add_write_perm,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _all_topics,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _add_topic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _list_kv,
    RequestCode.GET_TOPICS_BY_CLUSTER: _topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: _unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _unit_topics,
    RequestCode.UPDATE_NAMESRV_CONFIG: _update_config,
    RequestCode.GET_NAMESRV_CONFIG: _get_config,
    RequestCode.QUERY_DATA_VERSION: _data_version,
    RequestCode.GET_BROKER_MEMBER_GROUP: _member_group,
    RequestCode.BROKER_HEARTBEAT: _heartbeat,
}
