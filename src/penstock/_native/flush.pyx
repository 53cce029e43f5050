"""Group commit: one fdatasync acknowledges everybody who was waiting when it began.

A thread that waits alone syncs by itself; the loop serves those who cannot wait (futures). Runs without the
interpreter lock. The first failed sync is final: the kernel may have dropped the pages, and a second try would lie.
"""

from libc.errno cimport EIO
from libc.stdint cimport int64_t, uint64_t
from posix.unistd cimport write

from penstock._native.filestate cimport FileState, load_position, read_position, state_commit, state_sync, store_position
from penstock._native.mapping cimport Mapping
from penstock._native.signal cimport Signal
from penstock._native.threads cimport (
    cond_init, cond_until, load_int, pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_signal, pthread_mutex_destroy,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, steady_ns, store_int,
)


cdef class Flusher:
    """Knows the log files that may hold unsynced bytes, and how far everything is on disk."""

    def __cinit__(self, Signal visible):
        pthread_mutex_init(&self.mutex, NULL)
        cond_init(&self.done)
        cond_init(&self.wanted)
        self.mappings = []
        self.visible = visible

    def __dealloc__(self):
        pthread_cond_destroy(&self.done)
        pthread_cond_destroy(&self.wanted)
        pthread_mutex_destroy(&self.mutex)

    def use_file(self, Mapping mapping not None):
        """Sync this file too from now on. Files come in the order of the log."""
        if self.file_count == FLUSH_FILES:
            self.sync()
        if mapping.state.fd < 0:
            self.memory = True
        mapping.pin()
        pthread_mutex_lock(&self.mutex)
        self.mappings.append(mapping)
        self.files[self.file_count] = &mapping.state
        self.file_count += 1
        pthread_mutex_unlock(&self.mutex)

    def release_files(self):
        """Forget all files: the log is closed or was truncated."""
        pthread_mutex_lock(&self.mutex)
        dropped = self.mappings
        self.mappings = []
        self.file_count = 0
        pthread_mutex_unlock(&self.mutex)
        for mapping in dropped:
            (<Mapping> mapping).unpin()

    cdef int sync_files(self) noexcept nogil:
        """Sync what is written now. The caller has set `syncing`; the mutex is free. Returns 0 or an errno."""
        cdef FileState* files[FLUSH_FILES]
        cdef int i, count, code = 0
        cdef int64_t end = 0, where = -1
        pthread_mutex_lock(&self.mutex)
        count = self.file_count
        for i in range(count):
            files[i] = self.files[i]
        pthread_mutex_unlock(&self.mutex)
        for i in range(count):
            if files[i].write_buffer != NULL:
                code = -state_commit(files[i])
                if code:
                    break
            end = read_position(files[i])
            if end > load_position(&files[i].flushed):
                code = -state_sync(files[i])
                if code:
                    break
                store_position(&files[i].flushed, end)
                self.syncs += 1
            where = files[i].file_from + end
        pthread_mutex_lock(&self.mutex)
        if code:
            self.failed = code
        elif where > self.flushed:
            store_position(&self.flushed, where)
        pthread_mutex_unlock(&self.mutex)
        return code

    cdef int wait_flushed(self, int64_t offset, int64_t timeout_ns) noexcept nogil:
        """Wait until everything before `offset` is on disk."""
        cdef int64_t until = steady_ns() + timeout_ns
        cdef int answer = FLUSHED
        pthread_mutex_lock(&self.mutex)
        self.waiters += 1
        while True:
            if self.flushed >= offset:
                break
            if self.failed:
                answer = FLUSH_FAILED
                break
            if self.syncing:
                if cond_until(&self.done, &self.mutex, until) and self.flushed < offset:
                    answer = FLUSH_TIMED_OUT
                    break
                continue
            self.syncing = 1
            pthread_mutex_unlock(&self.mutex)
            self.sync_files()
            pthread_mutex_lock(&self.mutex)
            self.finish_sync()
        self.waiters -= 1
        pthread_mutex_unlock(&self.mutex)
        return answer

    cdef void finish_sync(self) noexcept nogil:
        """Tell everybody; the mutex is held."""
        cdef int i
        cdef uint64_t one = 1
        self.syncing = 0
        pthread_cond_broadcast(&self.done)
        for i in range(self.wake_count):
            write(self.wakes[i], &one, 8)
        if self.requested > self.flushed and not self.failed:
            pthread_cond_signal(&self.wanted)
        self.visible.notify_fast()

    def drop_synced_files(self):
        """Forget files that are full and on disk; the last one stays."""
        dropped = []
        pthread_mutex_lock(&self.mutex)
        if not self.syncing:
            while self.file_count > 1 and load_position(&self.files[0].flushed) >= self.files[0].size:
                dropped.append(self.mappings.pop(0))
                for i in range(1, self.file_count):
                    self.files[i - 1] = self.files[i]
                self.file_count -= 1
        pthread_mutex_unlock(&self.mutex)
        for mapping in dropped:
            (<Mapping> mapping).unpin()

    def sync(self):
        """Sync everything written so far; raises OSError when that fails, now and ever after."""
        cdef int code = 0
        if self.memory:
            return self.sync_memory()
        with nogil:
            pthread_mutex_lock(&self.mutex)
            while self.syncing:
                cond_until(&self.done, &self.mutex, steady_ns() + 1000000000)
            if not self.failed:
                self.syncing = 1
                pthread_mutex_unlock(&self.mutex)
                self.sync_files()
                pthread_mutex_lock(&self.mutex)
                self.finish_sync()
            code = self.failed
            pthread_mutex_unlock(&self.mutex)
        if code:
            raise OSError(code, "fdatasync of the commit log failed")
        self.drop_synced_files()

    def sync_memory(self):
        """The memory storage learns of each sync from its own mapping."""
        cdef Mapping mapping
        cdef int64_t end
        if self.failed:
            raise OSError(self.failed, "fdatasync of the commit log failed")
        for item in list(self.mappings):
            mapping = item
            if mapping.closed:
                continue  # its file was removed meanwhile
            if mapping.state.write_buffer != NULL:
                mapping.commit()
            end = read_position(&mapping.state)
            if end > mapping.state.flushed:
                try:
                    mapping.sync()
                except OSError as error:
                    self.failed = error.errno or EIO
                    raise
                store_position(&mapping.state.flushed, end)
                self.syncs += 1
            if mapping.state.file_from + end > self.flushed:
                store_position(&self.flushed, mapping.state.file_from + end)
        self.visible.notify()
        self.drop_synced_files()

    def wait(self, int64_t offset, double timeout):
        """True when everything before `offset` is on disk, False past the deadline; OSError when a sync failed."""
        cdef int answer
        cdef int64_t timeout_ns = <int64_t> (timeout * 1e9)
        if self.memory:
            if load_position(&self.flushed) < offset:
                self.sync_memory()
            return True
        with nogil:
            answer = self.wait_flushed(offset, timeout_ns)
        if answer == FLUSH_FAILED:
            raise OSError(self.failed, "fdatasync of the commit log failed")
        return answer == FLUSHED

    def request(self, int64_t offset):
        """Have the loop sync up to `offset`; the wake descriptors are written when it has."""
        self.want(offset)

    cdef void want(self, int64_t offset) noexcept nogil:
        # The mutex is never held for long: giving up the interpreter lock for it would cost more.
        pthread_mutex_lock(&self.mutex)
        if offset > self.requested:
            self.requested = offset
            if not self.syncing:
                pthread_cond_signal(&self.wanted)
        pthread_mutex_unlock(&self.mutex)

    def run(self):
        """The loop: syncs when somebody requested it, until `stop`. Runs in a thread of its own."""
        with nogil:
            pthread_mutex_lock(&self.mutex)
            while not self.stopping and not self.failed:
                if self.requested <= self.flushed or self.syncing:
                    cond_until(&self.wanted, &self.mutex, steady_ns() + 1000000000)
                    continue
                self.syncing = 1
                pthread_mutex_unlock(&self.mutex)
                self.sync_files()
                pthread_mutex_lock(&self.mutex)
                self.finish_sync()
            pthread_mutex_unlock(&self.mutex)

    def stop(self):
        pthread_mutex_lock(&self.mutex)
        self.stopping = 1
        pthread_cond_broadcast(&self.wanted)
        pthread_mutex_unlock(&self.mutex)

    def add_wake(self, int descriptor):
        """Write to this eventfd after each sync."""
        pthread_mutex_lock(&self.mutex)
        full = self.wake_count == FLUSH_WAKES
        if not full:
            self.wakes[self.wake_count] = descriptor
            self.wake_count += 1
        pthread_mutex_unlock(&self.mutex)
        if full:
            raise RuntimeError(f"more than {FLUSH_WAKES} event loops on one store")

    def remove_wake(self, int descriptor):
        cdef int i, kept = 0
        pthread_mutex_lock(&self.mutex)
        for i in range(self.wake_count):
            if self.wakes[i] != descriptor:
                self.wakes[kept] = self.wakes[i]
                kept += 1
        self.wake_count = kept
        pthread_mutex_unlock(&self.mutex)

    @property
    def flushed_where(self):
        return load_position(&self.flushed)

    @flushed_where.setter
    def flushed_where(self, int64_t value):
        store_position(&self.flushed, value)

    @property
    def error(self):
        """errno of the sync that failed, 0 while none has."""
        return self.failed

    @property
    def memory_backed(self):
        """True when the files are memory: syncs are done in the caller then."""
        return self.memory

    @property
    def sync_count(self):
        return self.syncs
