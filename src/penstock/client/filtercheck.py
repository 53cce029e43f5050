"""Asking a broker beforehand whether it serves an SQL filter, as Java's client does (protocol 3.3)."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.errors import RouteNotFound
from penstock.client.instance import ClientInstance
from penstock.client.route import MASTER_ID
from penstock.client.subscription import TAG, Subscription
from penstock.client.wirejson import encode
from penstock.remoting import RequestCode


async def check_filters(instance: ClientInstance, group: str, wanted: Iterable[Subscription]) -> None:
    """Raises what the broker says against an expression; a topic that nobody knows yet is not asked about."""
    for subscription in wanted:
        if subscription.kind == TAG:
            continue
        try:
            route = await instance.route(subscription.topic)
        except RouteNotFound:
            continue
        masters = [by_id[MASTER_ID] for by_id in route.addresses.values() if MASTER_ID in by_id]
        if masters:
            asked = {
                "clientId": instance.client_id,
                "group": group,
                "subscriptionData": subscription.as_json(),
            }
            await instance.call(masters[0], RequestCode.CHECK_CLIENT_CONFIG, body=encode(asked))
