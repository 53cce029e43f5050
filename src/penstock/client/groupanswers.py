"""What brokers ask of a consumer (protocol 3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.queue import MessageQueue
from penstock.client.wirejson import decode_any
from penstock.format.javajson import render
from penstock.remoting import Command, Connection, Handler, RequestCode, ResponseCode
from penstock.remoting.command import VERSION

if TYPE_CHECKING:
    from penstock.client.group import GroupMember


def answers(member: GroupMember[Any]) -> dict[int, Handler]:
    """The handlers of a member."""

    def members_changed(connection: Connection, request: Command) -> None:
        member.rebalance_soon()

    def reset(connection: Connection, request: Command) -> None:
        """220: the broker tells new offsets instead of keeping them for us."""
        table = decode_any(request.body).get("offsetTable") or {}
        offsets = {MessageQueue.from_json(dict(queue)): int(offset) for queue, offset in table.items()}
        member.spawn(member.reset_offsets(offsets))

    def status(connection: Connection, request: Command) -> Command:
        """221: our offsets of a topic."""
        topic = request.fields.get("topic")
        table = {
            _key(queue): member.commit_offset(held)
            for queue, held in member.queues.items()
            if topic in (None, queue.topic)
        }
        return request.answer(body=render({"messageQueueTable": table}, pretty=False).encode())

    def running(connection: Connection, request: Command) -> Command:
        """307: what an operator may want to know of us."""
        held = {
            _key(queue): {
                "commitOffset": member.commit_offset(found),
                "cachedMsgCount": len(found),
                "cachedMsgSizeInMiB": found.bytes >> 20,
                "cachedMsgMinOffset": found.commit_offset,
                "cachedMsgMaxOffset": max(found.pull_offset - 1, 0),
                "locked": found.locked_until > 0,
                "droped": found.dropped,
            }
            for queue, found in member.queues.items()
        }
        information = {
            "properties": {
                "PROP_CLIENT_VERSION": f"PENSTOCK_{VERSION}",
                "PROP_CONSUME_TYPE": member.consume_type,
                "PROP_CONSUMEORDERLY": str(member.orderly).lower(),
                "PROP_NAMESERVER_ADDR": ";".join(member.instance.addresses),
            },
            "subscriptionSet": [wanted.as_json() for wanted in member.wanted().values()],
            "mqTable": held,
            "mqPopTable": {},
            "statusTable": {},
            "userConsumerInfo": {},
        }
        return request.answer(body=render(information, pretty=False).encode())

    def directly(connection: Connection, request: Command) -> Command:
        return request.answer(
            ResponseCode.SYSTEM_ERROR, remark="this client takes messages only from its queues"
        )

    return {
        int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): members_changed,
        int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): reset,
        int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): status,
        int(RequestCode.GET_CONSUMER_RUNNING_INFO): running,
        int(RequestCode.CONSUME_MESSAGE_DIRECTLY): directly,
    }


def _key(queue: MessageQueue) -> tuple[tuple[str, Any], ...]:
    return tuple(queue.as_json().items())
