"""What a writing task does: rows in, one staged file out. Batch writer and streaming sink share it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock._native import staged
from penstock._native.staged import RecordEncoder
from penstock.clock import Clock, SystemClock
from penstock.config import StoreConfig
from penstock.errors import MessageRejected
from penstock.format.staged import encode_row, milliseconds, row_message
from penstock.message import Message
from penstock.message.host import pack_host
from penstock.message.ids import UniqueIdGenerator
from penstock.message.properties import PROPERTY_TIMER_DELIVER_MS
from penstock.spark.staging import BLOCK_BYTES, RunWriter, StagedRun, StagingArea
from penstock.spark.writeoptions import WriteOptions, check_topic
from penstock.store.innerput import needs_offset
from penstock.store.timerhook import schedule_hook

if TYPE_CHECKING:
    import pyarrow as pa

_REFUSED = {
    staged.NO_TOPIC: ("MESSAGE_ILLEGAL", "it has no topic, and there is no option 'topic'"),
    staged.LONG_BODY: ("MESSAGE_ILLEGAL", "its body is longer than the store takes"),
    staged.LONG_PROPERTIES: ("PROPERTIES_SIZE_EXCEEDED", "its properties take more than 32767 bytes"),
    staged.LONG_RECORD: ("MESSAGE_ILLEGAL", "its record is longer than the store takes"),
    staged.SEPARATOR: ("MESSAGE_ILLEGAL", "a property holds a separator (0x01 or 0x02)"),
    staged.BAD_QUEUE: ("MESSAGE_ILLEGAL", "its queue id is not between 0 and 65535"),
}


@dataclass(frozen=True)
class WritePlan:
    """What the tasks of one write have to know. Pickled into each of them."""

    options: WriteOptions
    roles: tuple[str, ...]
    config: StoreConfig


@dataclass(frozen=True)
class _Judge:
    """As much of a store as the hooks for later delivery look at."""

    config: StoreConfig
    clock: Clock


class RowEncoder:
    """Encodes the rows of one task attempt."""

    def __init__(self, plan: WritePlan, partition: int, *, queues: int | None = None) -> None:
        """``queues``: how many rows without one are spread over, if not what the options say."""
        config = plan.config
        self._plan = plan
        self._judge = _Judge(config, SystemClock())
        prefix = bytes.fromhex(UniqueIdGenerator()())[:10]
        self.prefix = prefix.hex().upper().encode()
        topic = plan.options.topic
        self.native = RecordEncoder(
            pack_host(config.store_host),
            config.max_message_size,
            min(config.max_message_size + 65536, config.mapped_file_size_commit_log - 8),
            prefix,
            plan.options.queues if queues is None else queues,
            partition,
            topic.encode() if topic is not None else None,
        )
        self._before = 0

    def stage(self, batches: Iterable[pa.RecordBatch], area: StagingArea, write: str, name: str) -> StagedRun:
        """Encode everything into one staged file, which is on disk then. Leaves nothing when it fails."""
        writer = area.create(write, name)
        self.native.noted = True  # tasks work side by side, the append is alone
        try:
            for batch in batches:
                self.encode(batch)
                if self.native.size >= BLOCK_BYTES:
                    self._put(writer)
            if self.native.size:
                self._put(writer)
            return writer.finish(self.native.queues)
        except BaseException:
            writer.discard()
            raise

    def _put(self, writer: RunWriter) -> None:
        slots, records = self.native.peek()
        writer.add(slots, self.native.notes, records)
        self.native.clear()

    def encode(self, batch: pa.RecordBatch) -> None:
        """Encode rows behind those that wait in ``native``."""
        native = self.native
        native.begin(batch, self._plan.roles)
        now = time.time_ns() // 1_000_000
        while (code := native.run(now)) != staged.DONE:
            try:
                if code == staged.NEED_QUEUE:
                    topic, queue_id = native.wanted
                    check_topic(topic.decode())
                    native.add_queue(topic, queue_id)
                elif code == staged.SPECIAL:
                    self._special(batch, now)
                else:
                    raise MessageRejected(*_REFUSED[code])
            except (MessageRejected, ValueError) as error:
                status = error.status if isinstance(error, MessageRejected) else "MESSAGE_ILLEGAL"
                reason = error.reason if isinstance(error, MessageRejected) else str(error)
                raise MessageRejected(
                    status, f"row {self._before + native.row} of the partition is refused: {reason}"
                ) from error
        self._before += batch.num_rows

    def _special(self, batch: pa.RecordBatch, now: int) -> None:
        """A row that is to be delivered later: stored under another name, with its own in the properties."""
        native, config = self.native, self._plan.config
        values = batch.slice(native.row, 1).to_pylist()[0]
        row: dict[str, Any] = dict(zip(self._plan.roles, values.values(), strict=True))
        message = row_message(
            row,
            topic=self._plan.options.topic,
            queue_id=native.choose(),
            unique_key=native.unique_key(),
            now=now,
        )
        check_topic(message.topic)
        message = _scheduled(message, row)
        if needs_offset(message, config):
            raise MessageRejected("MESSAGE_ILLEGAL", "batches of messages and light queues are not written")
        self.add_scheduled(message)

    def add_scheduled(self, message: Message) -> None:
        """Take in the message of the row that stopped the run."""
        answer = schedule_hook(message, self._judge)  # type: ignore[arg-type]
        if isinstance(answer, str):
            raise MessageRejected(answer, "it asks for a delivery that is not possible")
        self.add_message(answer)

    def add_message(self, message: Message) -> None:
        """Put a message as it is in the place of the row that stopped the run."""
        record = encode_row(message, self._plan.config.store_host)
        self.native.add_record(record, self.native.add_queue(message.topic.encode(), message.queue_id))


def _scheduled(message: Message, row: dict[str, Any]) -> Message:
    """The message with what the columns ``delay`` and ``deliverAt`` ask for."""

    deliver, delay = row.get("deliverAt"), row.get("delay")
    if deliver is not None:
        properties = {**(message.properties or {}), PROPERTY_TIMER_DELIVER_MS: str(milliseconds(deliver))}
        message = replace(message, properties=properties)
    return replace(message, delay_level=delay) if delay else message
