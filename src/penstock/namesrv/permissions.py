"""What each request of a name server needs when accounts are on. RocketMQ's name servers ask nobody."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.message.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from penstock.remoting import Command, RequestCode
from penstock.security.actions import Action
from penstock.security.rules import ACCOUNT, SUPER, SUPER_READ, Need, Rule, rights, topic_need

_KNOWN = Action.PUB | Action.SUB | Action.GET


def _route(request: Command) -> Iterable[Need]:
    topic = request.fields.get("topic")
    # What producers ask for before they make a topic tells nothing about anybody.
    if topic != AUTO_CREATE_TOPIC_KEY_TOPIC:
        yield topic_need(topic, _KNOWN)


_RULES: dict[RequestCode, Rule] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: rights(_route),
    RequestCode.GET_BROKER_CLUSTER_INFO: ACCOUNT,
    RequestCode.GET_BROKER_MEMBER_GROUP: ACCOUNT,
    RequestCode.GET_KV_CONFIG: ACCOUNT,
    # -- brokers: they sign with an administrator's account -------------------------------------------------
    RequestCode.REGISTER_BROKER: SUPER_READ,
    RequestCode.UNREGISTER_BROKER: SUPER_READ,
    RequestCode.QUERY_DATA_VERSION: SUPER_READ,
    RequestCode.BROKER_HEARTBEAT: SUPER_READ,
    # -- lists of everything --------------------------------------------------------------------------------
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: SUPER_READ,
    RequestCode.GET_TOPICS_BY_CLUSTER: SUPER_READ,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: ACCOUNT,
    RequestCode.GET_UNIT_TOPIC_LIST: SUPER_READ,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: SUPER_READ,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: SUPER_READ,
    RequestCode.GET_KVLIST_BY_NAMESPACE: SUPER_READ,
    RequestCode.GET_NAMESRV_CONFIG: SUPER_READ,
    # -- changes --------------------------------------------------------------------------------------------
    RequestCode.PUT_KV_CONFIG: SUPER,
    RequestCode.DELETE_KV_CONFIG: SUPER,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: SUPER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: SUPER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: SUPER,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: SUPER,
    RequestCode.UPDATE_NAMESRV_CONFIG: SUPER,
}


def permissions() -> dict[int, Rule]:
    """The rules by code."""
    return {int(code): rule for code, rule in _RULES.items()}
