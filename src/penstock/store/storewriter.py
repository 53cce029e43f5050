"""The writing half of the store's face."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import msgspec

from penstock._native.append import HOOK
from penstock._native.flush import Flusher
from penstock._native.mapping import Mapping
from penstock._native.putresult import PutResult, PutResults, refusal
from penstock._native.queue import Queue
from penstock.errors import FlushFailed, MessageRejected, PenstockError, StoreError, StoreReadOnly
from penstock.files.failure import store_error
from penstock.files.mappedfile import MappedFile
from penstock.message import Message
from penstock.message.properties import delete_property
from penstock.store.flushmanager import FlushManager
from penstock.store.innerput import needs_offset, put_with_offset
from penstock.store.upkeep import Parts

CRC32 = b"__CRC32#"


class StoreWriter:
    """Puts messages. Any thread may."""

    flush_manager: FlushManager
    failure: PenstockError | None
    """Why nothing can be written any more: a sync that failed. None while all is well."""

    def __init__(self, parts: Parts, hook: Callable[[Message], Message | str]) -> None:
        """``hook`` says what to store in place of a message that has properties of its own."""
        self.config = parts.commit_log.config
        self.clock = parts.commit_log.clock
        self.failure = None
        self._hook = hook
        self._log = parts.commit_log
        self._queues = parts.queues
        self._dispatcher = parts.dispatcher
        self._disk_full = False
        self._appender = parts.commit_log.appender
        self._appender.busy_after_ms = self.config.os_page_cache_busy_timeout_ms
        self._log.encoder.hooks = True
        self._put: Callable[..., Any] = self._appender.put
        self._put_waiting: Callable[..., Any] = parts.commit_log.loop_puts.put
        if not self._log.system_clock:
            self._put, self._put_waiting = self._put_with_clock, self._put_waiting_with_clock

    def put(self, message: Message) -> PutResult:
        """Store one message. With sync flush it is on disk when this returns with PUT_OK.

        What is wrong with the message is a status of the result; what is wrong with the store is raised:
        ``DiskFull`` (may be tried again), ``FlushFailed`` (final), ``StoreClosed``.
        """
        try:
            result = self._put(message)
        except OSError as error:
            raise self._write_error(error) from error
        if result is HOOK:
            return self._put_hooked(message, wait=True)
        return result  # type: ignore[no-any-return]

    def put_raw(self, message: Message) -> PutResult:
        """As ``put``, without looking at what the properties ask for (delay, timer)."""
        try:
            return self._put_plain(message, wait=True)
        except OSError as error:
            raise self._write_error(error) from error

    def put_many(self, messages: Iterable[Message], *, whole: bool = False) -> PutResults | list[PutResult]:
        """Store messages of any topics: one lock, one wait for the disk, a result each.

        A message that is refused leaves the others alone. ``whole``: all in one log file, as a client batch
        is.
        """
        batch = messages if isinstance(messages, list) else list(messages)
        try:
            results = self._appender.put_many(batch, self._log.store_time(), False, True, whole)
        except OSError as error:
            raise self._write_error(error) from error
        if results is HOOK:
            return self._put_many_hooked(batch)
        return results  # type: ignore[no-any-return]

    def append(self, message: Message, *, hooks: bool = True) -> PutResult:
        """As ``put``, or without ``hooks`` as ``put_raw``; does not wait for the disk."""
        try:
            if not hooks:
                return self._put_plain(message, wait=False)
            result = self._put(message, -1, False, False)
        except OSError as error:
            raise self._write_error(error) from error
        if result is HOOK:
            return self._put_hooked(message, wait=False)
        return result  # type: ignore[no-any-return]

    def append_plain(self, message: Message) -> PutResult:
        """As ``append`` without hooks, for raw properties that the caller knows: there is nothing of inner
        batches, light queues or checksums among them.
        """
        try:
            return self._log.put_message(message, wait=False)
        except OSError as error:
            raise self._write_error(error) from error

    def append_many(self, messages: list[Message]) -> PutResults:
        """As ``put_many`` of a client batch, all in one log file; without hooks, and without waiting for the
        disk.
        """
        try:
            return self._log.put_messages(messages, wait=False)
        except OSError as error:
            raise self._write_error(error) from error

    def append_batch(self, message: Message, body: bytes | bytearray | memoryview) -> PutResults:
        """As ``append_many`` of the messages in a client's batch: they have what it says and everything
        else from ``message``. ValueError, and nothing stored, when the batch is damaged.
        """
        try:
            results = self._appender.put_batch(message, body, self._log.store_time(), False)
        except OSError as error:
            raise self._write_error(error) from error
        self._dispatcher.appended_batch(results, message.sys_flag, body)
        return results

    @property
    def append_count(self) -> int:
        """Records appended since the store was opened."""
        return self._appender.put_count

    @property
    def appended_where(self) -> int:
        """End of what was appended; with the transient pool readers see it only when it is committed."""
        return self._appender.end_offset

    @property
    def roll_error(self) -> StoreError | None:
        """Why there is no log file to append to; None while there is."""
        return self._log.roll_error

    @property
    def flusher(self) -> Flusher:
        """Who syncs the log: for an event loop that waits for many appends at once."""
        return self._log.flusher

    def sync_failed(self, error: OSError) -> None:
        """Somebody who waited for the flusher himself saw a sync fail: nothing is accepted any more."""
        self._on_flush_failure(error)

    def awaited_file(self, body_bytes: int) -> Future[MappedFile] | None:
        """What a put of such a message would wait for; None when there is room. See the log's."""
        return self._log.awaited_file(body_bytes)

    def put_records(
        self,
        records: bytearray | memoryview,
        slots: memoryview,
        queues: Sequence[tuple[str, int]],
        *,
        held: bool = False,
    ) -> None:
        """Append finished records in bulk; the bytes are those ``put_many`` would write.

        Each record is whole but for queue offset, physical offset and store time, which are filled in where
        it lies: ``records`` is memory that may be written to. Record ``i`` belongs to ``queues[slots[i]]``
        (32-bit numbers). Does not wait for the disk: call ``flush``. Raises when not all were appended, and
        then a first part of them may be in the log.

        ``held``: length and magic of the first record stay zeros in the log, so that to everybody who opens
        it, it ends there whatever follows, until ``show_record`` writes them.
        """
        done, reason = self._append_records(records, slots, self.native_queues(queues), held)
        if done < len(slots):
            cause = self.failure or self._log.roll_error
            raise StoreError(
                f"{len(slots) - done} of {len(slots)} records were not appended: {cause or reason}",
                file=self._log.folder,
            )

    def append_records(
        self, records: bytearray | memoryview, slots: Any, queues: Sequence[tuple[str, int]]
    ) -> int:
        """As ``put_records``; how many were appended, from the first one on.

        None of them when one may not be, or when the log's records have checksums: then put each by itself.
        """
        if self.config.enabled_append_prop_crc:
            return 0
        try:
            return self._append_records(records, slots, self.native_queues(queues))[0]
        except (
            MessageRejected,
            ValueError,
        ):  # an illegal queue, or one is too long for the files of this log
            return 0

    def _append_records(
        self, records: Any, slots: Any, natives: list[Queue], held: bool = False
    ) -> tuple[int, str | None]:
        try:
            return self._appender.put_records(records, slots, natives, self._log.store_time(), held)
        except OSError as error:
            raise self._write_error(error) from error

    def show_record(self, physical_offset: int, head: bytes) -> None:
        """Write what ``put_records`` held back, once everything behind it is on disk, and have it there."""
        file = self._log.files.find_mapped_file_by_offset(physical_offset)
        assert file is not None  # it was appended by this process
        try:
            file.mapping.write(physical_offset - file.file_from_offset, head)
            file.mapping.sync()
        except OSError as error:
            self._on_flush_failure(error)
            raise self._write_error(error) from error

    def native_queues(self, queues: Sequence[tuple[str, int]]) -> list[Queue]:
        """The native sides of queues, made if they are new. Raises MessageRejected when one cannot be."""
        natives = []
        for topic, queue_id in queues:
            native = self._queues.native(topic, queue_id)
            if native is None:
                raise MessageRejected("MESSAGE_ILLEGAL", f"the queue {topic!r}-{queue_id} is not allowed")
            natives.append(native)
        return natives

    def log_files(self, begin: int) -> list[Mapping]:
        """The log from the file on that holds ``begin``, as it is mapped."""
        files = self._log.files.files
        return [file.mapping for file in files if file.file_from_offset + file.file_size > begin]

    async def put_async(self, message: Message) -> PutResult:
        """As ``put``; waits for the disk without holding up the event loop. Many may wait at once."""
        try:
            answer = self._put_waiting(message)
            if not isinstance(answer, (PutResult, int)):
                answer = await answer
            if isinstance(answer, int):
                answer = await self._put_with_room(message)
            return answer if isinstance(answer, PutResult) else await answer
        except OSError as error:
            raise self._write_error(error) from error

    async def _put_with_room(self, message: Message) -> PutResult | asyncio.Future[PutResult]:
        """Put what the quick way left: there was no room in the log file, or the hooks have to see it."""
        awaited = self._log.awaited_file(len(message.body) if message.body is not None else 0)
        if awaited is not None:
            # Only until it is there: whether it could be made, the put itself finds out.
            await asyncio.wait([asyncio.wrap_future(awaited)], timeout=self._log.allocate.wait_seconds)
        result = self._put(message, -1, False, False)
        if result is HOOK:
            result = self._put_hooked(message, wait=False)
        if not (self._log.sync_flush and message.wait and result.ok):
            return result  # type: ignore[no-any-return]
        if self._log.flusher.memory_backed:
            self._log.flusher.wait(result.end_offset, self._appender.sync_timeout)
            return result  # type: ignore[no-any-return]
        return self.flush_manager.group_commit.waiters().wait(result.end_offset, result)

    def _put_with_clock(
        self, message: Message, now: int = -1, hooked: bool = False, wait: bool = True
    ) -> Any:
        return self._appender.put(message, self.clock.now_ms(), hooked, wait)

    def _put_waiting_with_clock(self, message: Message) -> Any:
        return self._log.loop_puts.put(message, self.clock.now_ms())

    def _put_plain(self, message: Message, *, wait: bool) -> PutResult:
        if needs_offset(message, self.config, self._queues.batch_topics):
            return put_with_offset(self._log, self._queues, message, self._log.store_time(), wait)
        if self.config.enabled_append_prop_crc and message.raw_properties and CRC32 in message.raw_properties:
            kept = delete_property(message.raw_properties, CRC32.decode())
            message = msgspec.structs.replace(message, raw_properties=kept)
        return self._log.put_message(message, wait=wait)

    def _put_hooked(self, message: Message, *, wait: bool) -> PutResult:
        answer = self._hook(message)
        if isinstance(answer, str):
            return refusal(answer, "the message asks for a delivery that is not possible")
        try:
            return self._put_plain(answer, wait=wait)
        except OSError as error:
            raise self._write_error(error) from error

    def _put_many_hooked(self, batch: list[Message]) -> list[PutResult]:
        """Messages with properties of their own: each is looked at, then all are waited for at once."""
        results = [self._put_hooked(message, wait=False) for message in batch]
        ends = [r.end_offset for r, m in zip(results, batch, strict=True) if r.ok and m.wait]
        if self._log.sync_flush and ends:
            try:
                done = self._log.flusher.wait(max(ends), self._appender.sync_timeout)
            except OSError as error:
                raise self._write_error(error) from error
            for result, message in zip(results, batch, strict=True):
                if not done and result.ok and message.wait:
                    result.timed_out()
        return results

    def _write_error(self, error: OSError) -> PenstockError:
        if self._log.flusher.error:
            self._on_flush_failure(error)
        if self.failure is not None:
            return self.failure
        return store_error(error, "writing the log")

    def _on_flush_failure(self, error: OSError) -> None:
        """The first failed sync is final: the kernel may have dropped the pages."""
        if self.failure is None:
            self.failure = FlushFailed(
                f"a sync failed: {error}",
                file=self._log.folder,
                hint="nothing more is accepted; check the disk, then open the store again",
            )
            self._put = self._put_waiting = self._refuse_failed
            self._appender.unavailable = "a sync failed: nothing is accepted any more"

    def _refuse_failed(self, *_: Any, **__: Any) -> NoReturn:
        raise StoreReadOnly(
            "a sync failed: nothing is accepted any more", cause=self.failure, file=self._log.folder
        ) from self.failure

    def _on_disk(self, full: bool, used: float) -> None:
        """Refuse writing while the disk is nearly full; accept it again as soon as it is not (fault S13)."""
        if full != self._disk_full and self.failure is None:
            self._disk_full = full
            self._appender.unavailable = f"the disk is {used:.0%} full" if full else None
