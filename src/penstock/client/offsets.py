"""How far a group came: kept by the broker, or by each member of a broadcasting group (protocol 7.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from penstock.client.instance import ClientInstance
from penstock.client.queue import MessageQueue
from penstock.errors import PenstockError, UsageError
from penstock.format.javajson import JsonError, parse, render
from penstock.remoting import RequestCode, ResponseCode

log = logging.getLogger("penstock.client")


class Offsets(Protocol):
    """Where the next message of each queue is."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The kept offset, or None when the group has none there."""

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool = False) -> None:
        """Keep these. ``wait`` until they are kept; else a failure is only logged."""


class BrokerOffsets:
    """Offsets of a clustering group, at the broker of each queue."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def read(self, queue: MessageQueue) -> int | None:
        answer = await self._instance.call(
            self._instance.broker_address(queue.broker_name),
            RequestCode.QUERY_CONSUMER_OFFSET,
            self._fields(queue),
            also=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        offset = int(answer.fields["offset"])
        return offset if offset >= 0 else None

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool = False) -> None:
        if wait:
            await asyncio.gather(*(self._write(queue, offset) for queue, offset in offsets.items()))
            return
        for queue, offset in offsets.items():
            fields = {**self._fields(queue), "commitOffset": str(offset)}
            try:
                address = self._instance.broker_address(queue.broker_name)
                await self._instance.oneway(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            except PenstockError as error:
                log.warning("offset %d of %s not kept: %s", offset, queue, error)

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        fields = {**self._fields(queue), "commitOffset": str(offset)}
        address = self._instance.broker_address(queue.broker_name)
        await self._instance.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def _fields(self, queue: MessageQueue) -> dict[str, str]:
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }


class FileOffsets:
    """Offsets of one member of a broadcasting group, in RocketMQ's ``offsets.json``, replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "offsets.json"
        self._known: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue) -> int | None:
        if self._known is None:
            self._known = await asyncio.to_thread(self._load)
        return self._known.get(queue)

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool = False) -> None:
        if self._known is None:
            self._known = await asyncio.to_thread(self._load)
        if all(self._known.get(queue) == offset for queue, offset in offsets.items()):
            return
        self._known.update(offsets)
        await asyncio.to_thread(self._save, sorted(self._known.items()))

    def _load(self) -> dict[MessageQueue, int]:
        try:
            table = parse(self.path.read_text())["offsetTable"]
            return {MessageQueue.from_json(dict(queue)): int(offset) for queue, offset in table.items()}
        except FileNotFoundError:
            return {}
        except (JsonError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"these are no offsets: {error}", file=self.path, hint="move the file away to start anew"
            ) from None

    def _save(self, offsets: Iterable[tuple[MessageQueue, int]]) -> None:
        table = {tuple(queue.as_json().items()): offset for queue, offset in offsets}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".json.tmp")
        fresh.write_text(render({"offsetTable": table}))
        fresh.replace(self.path)
