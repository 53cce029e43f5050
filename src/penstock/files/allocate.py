"""Files ahead of need: the next log file is there, and its first pages are ready, before the current one is
full."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from itertools import count
from pathlib import PurePath

from penstock.errors import StoreClosed, StoreError
from penstock.files.mappedfile import WINDOW, MappedFile, offset_of
from penstock.files.storage import Storage, StoragePath
from penstock.files.transient import TransientStorePool

MAKE, PREPARE = 0, 1


class AllocateMappedFileService:
    """Makes files and prepares pages on one thread of its own, or, when never started, at once in the caller.

    ``window`` bytes ahead of the write position are made ready (16 to 64 MiB are sensible; a whole file
    would be a file's worth of dirty cache, which the next sync pays for); ``written`` also syncs them, which
    makes later syncs cheaper. ``warm`` makes whole files ready, ``warm_window`` bytes at a time, and keeps
    their pages in memory. A failure belongs to one file: it is raised to who asks for that file, and
    asking again tries again.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        window: int = 32 << 20,
        written: bool = False,
        warm: bool = False,
        warm_window: int = WINDOW,
        pool: TransientStorePool | None = None,
        fast_fail_without_buffer: bool = False,
        wait_seconds: float = 5.0,
        on_error: Callable[[StoreError], None] | None = None,
    ) -> None:
        self.storage = storage
        self.window = window
        self.written = written
        self.warm = warm
        self.warm_window = warm_window
        self.wait_seconds = wait_seconds
        self._pool = pool
        self._fast_fail = fast_fail_without_buffer
        self._on_error = on_error
        self._condition = threading.Condition()
        self._futures: dict[str, Future[MappedFile]] = {}
        self._work: list[tuple[int, int, int, int, str, MappedFile | None]] = []
        self._preparing: set[str] = set()
        self._order = count()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Start the thread. Without it every request is served in the caller, and nothing is made ahead."""
        with self._condition:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(
                    target=self._run, name="AllocateMappedFileService", daemon=True
                )
                self._thread.start()

    # -- files -------------------------------------------------------------------------------------

    def request(self, path: StoragePath, next_path: StoragePath | None, size: int) -> Future[MappedFile]:
        """Ask for the file at ``path`` and, ahead of need, for ``next_path``. Does not wait.

        The future belongs to the service until ``take`` hands the file out; it may serve to wake a waiting
        writer.
        """
        name = str(path)
        with self._condition:
            if self._stopping:
                raise StoreClosed("the allocation service is shut down", file=name)
            quota = 2
            if self._fast_fail and self._pool is not None:
                quota = self._pool.available - sum(1 for item in self._work if item[0] == MAKE)
            future = self._futures.get(name)
            if future is not None and future.done() and future.exception() is not None:
                del self._futures[name]  # the space may be back: try again
                future = None
            if future is None:
                if quota <= 0:
                    raise StoreError("no write buffer is free", file=name, hint="retry, or enlarge the pool")
                quota -= 1
                future = self._enqueue(name, size)
            if next_path is not None and self._thread is not None and quota > 0:
                ahead = self._futures.get(str(next_path))
                if ahead is None or (ahead.done() and ahead.exception() is not None):
                    self._enqueue(str(next_path), size)
            alone = self._thread is None
        if alone:
            self._serve(name, size)
        return future

    def take(
        self, path: StoragePath, next_path: StoragePath | None, size: int, *, wait: bool = True
    ) -> MappedFile | None:
        """The file at ``path``, which is the caller's from now on; None when it is not there in time.

        Waits ``wait_seconds`` at most; a file that comes later is kept for the next call. Raises what making
        it raised (``DiskFull`` when there is no space), and tries again when called again.
        """
        name = str(path)
        future = self.request(name, next_path, size)
        try:
            made = future.result(timeout=self.wait_seconds if wait else 0)
        except (FutureTimeout, CancelledError):  # not yet; or discarded while we waited
            return None
        except StoreError as error:
            with self._condition:
                if self._futures.get(name) is future:
                    del self._futures[name]
            raise error.with_traceback(None) from error.__cause__
        with self._condition:
            if self._futures.get(name) is not future:
                return None  # somebody else took it, or it was discarded
            del self._futures[name]
        return made

    def put_request_and_return_mapped_file(
        self, next_path: StoragePath, next_next_path: StoragePath | None, size: int
    ) -> MappedFile | None:
        """RocketMQ's name for ``take``."""
        return self.take(next_path, next_next_path, size)

    def discard(self, folder: StoragePath) -> None:
        """Remove the files of ``folder`` that were made ahead and not taken: the queue ends elsewhere now."""
        with self._condition:
            names = [name for name in self._futures if PurePath(name).parent == PurePath(folder)]
            futures = [self._futures.pop(name) for name in names]
        _remove(futures)

    def shutdown(self) -> None:
        """Stop the thread and remove the files that nobody took."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        with self._condition:
            futures = list(self._futures.values())
            self._futures.clear()
            self._work.clear()
        _remove(futures)

    # -- pages -------------------------------------------------------------------------------------

    def prepare_ahead(self, file: MappedFile) -> None:
        """Make the pages in front of the write position ready, when less than half a window of them is.

        Cheap when there is nothing to do: call it once per flush or batch. Without the thread it does
        nothing.
        """
        wrote = file.wrote_position
        if file.prepared_position - wrote >= self.window // 2 or file.prepared_position >= file.file_size:
            return
        with self._condition:
            if self._thread is None or self._stopping or file.path in self._preparing:
                return
            self._preparing.add(file.path)
            heapq.heappush(
                self._work, (PREPARE, 0, file.file_from_offset, next(self._order), file.path, file)
            )
            self._condition.notify_all()

    # -- the thread --------------------------------------------------------------------------------

    def _enqueue(self, name: str, size: int) -> Future[MappedFile]:
        future: Future[MappedFile] = Future()
        self._futures[name] = future
        if self._thread is not None:
            # Larger files first, then in the order of their names: what is needed sooner.
            heapq.heappush(self._work, (MAKE, -size, offset_of(name), next(self._order), name, None))
            self._condition.notify_all()
        return future

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._work and not self._stopping:
                    self._condition.wait()
                if self._stopping:
                    return
                kind, negative_size, _, _, name, file = heapq.heappop(self._work)
            if kind == MAKE:
                self._serve(name, -negative_size)
            elif file is not None:
                self._prepare(file)

    def _serve(self, name: str, size: int) -> None:
        with self._condition:
            future = self._futures.get(name)
            if future is None or future.done():
                return  # discarded meanwhile
        try:
            made = MappedFile.create(self.storage, name, size, reserve=True, pool=self._pool)
        except (StoreError, OSError) as error:
            failure = error if isinstance(error, StoreError) else StoreError(str(error), file=name)
            with self._condition:
                if self._futures.get(name) is future:
                    future.set_exception(failure)
            self._report(failure)
            return
        if self._thread is not None:
            self._prepare(made)
        with self._condition:
            wanted = self._futures.get(name) is future
            if wanted:
                future.set_result(made)
        if not wanted:
            made.destroy()

    def _prepare(self, file: MappedFile) -> None:
        """Pages from the write position on. Failing only makes the writes slower, so it is reported, not
        raised."""
        wrote = file.wrote_position
        try:
            file.prepared_position = max(file.prepared_position, wrote)
            if self.warm:
                file.warm_up(written=self.written, window=self.warm_window)
            else:
                file.prepare(wrote + self.window, written=self.written)
        except (StoreError, ValueError) as error:
            self._report(error if isinstance(error, StoreError) else StoreError(str(error), file=file.path))
        finally:
            with self._condition:
                self._preparing.discard(file.path)
                self._condition.notify_all()

    def _report(self, error: StoreError) -> None:
        if self._on_error is not None:
            self._on_error(error)


def _remove(futures: list[Future[MappedFile]]) -> None:
    for future in futures:
        if future.done() and future.exception() is None:
            future.result().destroy()
        else:
            future.cancel()
