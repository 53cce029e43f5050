# cython: language_level=3
"""What native code does with the state of one file: write, commit, sync, and fail when told to.

Every function answers 0 or -errno, needs no interpreter lock and leaves the positions alone unless it says otherwise.
"""

from libc.errno cimport EBADF, EINVAL
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy


cdef extern from "mapping_os.h" nogil:
    void penstock_lock(int* lock) noexcept
    void penstock_unlock(int* lock) noexcept
    int penstock_write_all(int fd, const uint8_t* data, int64_t count, int64_t position) noexcept
    int penstock_sync(int fd, void* base, int64_t size) noexcept
    int penstock_populate(uint8_t* base, int64_t begin, int64_t end) noexcept
    bint penstock_unwritten(int fd, int64_t begin, int64_t end) noexcept

cdef enum:
    PAGE = 4096
    PIECE = 65536

cdef uint8_t[PIECE] _zeros


cdef int state_injected(int* error, int64_t* times) noexcept nogil:
    """The errno to fail with, counted down; 0 when nothing is injected."""
    cdef int result = error[0]
    if result != 0 and times[0] > 0:
        times[0] -= 1
        if times[0] == 0:
            error[0] = 0
    return result


cdef int state_write(FileState* state, int64_t position, const uint8_t* data, int64_t n) noexcept nogil:
    """Write ``n`` bytes at ``position``: 0, or -errno. Does not move any position."""
    cdef int failed
    if position < 0 or n < 0 or position + n > state.size:
        return -EINVAL
    if not state.writable or (state.base == NULL and state.fd < 0):
        return -EBADF
    failed = state_injected(&state.write_error, &state.write_error_times)
    if failed:
        return -failed
    claim(state, position + n)
    if state.fd >= 0:
        return penstock_write_all(state.fd, data, n, position)
    memcpy(state.base + position, data, n)
    return 0


cdef int state_write_ahead(FileState* state, int64_t position, int64_t end) noexcept nogil:
    """Have the blocks of [position, end) written as soon as they are synced, changing no byte: 0, or -errno.

    Blocks that never were written get zeros, in pieces that the system keeps as one and later writes and syncs cheaply;
    others have their pages made dirty. A writer may run beside it: a piece is claimed before it is looked at, and left alone
    when the writer has come so far.
    """
    cdef int64_t at = position, stop, reached
    cdef int result = 0
    while at < end and result == 0:
        reached = max(penstock_look(&state.claimed), load_position(&state.wrote))
        stop = min(end, (at // PIECE + 1) * PIECE)
        if at % PAGE or reached > at:
            # The page where the writer is; those before it are written already.
            at = max(at, min(reached, end))
            stop = min(end, (at + PAGE - 1) // PAGE * PAGE)
            result = penstock_populate(state.base, at, stop)
            at = stop
            continue
        penstock_say(&state.zeroing, at + 1)
        if penstock_look(&state.claimed) > at or load_position(&state.wrote) > at:
            penstock_say(&state.zeroing, 0)
            continue
        if penstock_unwritten(state.fd, at, stop):
            result = penstock_write_all(state.fd, _zeros, stop - at, at)
            penstock_say(&state.zeroing, 0)
        else:
            penstock_say(&state.zeroing, 0)
            result = penstock_populate(state.base, at, stop)
        at = stop
    return result


cdef int state_sync_for_good(FileState* state) noexcept nogil:
    """The system tells of a lost write once; whoever hears it keeps it, so that no later sync of this file succeeds."""
    cdef int result = 0
    if state.fd >= 0:
        result = penstock_sync(state.fd, state.base, state.size)
        if result != 0:
            state.sync_error_times = 0
            state.sync_error = -result
    return result


cdef int state_sync(FileState* state) noexcept nogil:
    """Everything written so far is on disk: 0, or -errno. For memory the owner must be told by ``Mapping.sync``."""
    cdef int failed
    if state.fd < 0 and state.base == NULL:
        return -EBADF
    failed = state_injected(&state.sync_error, &state.sync_error_times)
    if failed:
        return -failed
    return state_sync_for_good(state)


cdef int state_commit(FileState* state) noexcept nogil:
    """Move [committed, wrote) from the write buffer into the file: 0, or -errno and nothing moved.

    Locked against another commit and against the detaching of the buffer, which goes to another file zeroed.
    """
    cdef int64_t begin, end
    cdef int result = 0
    if state.write_buffer == NULL:
        return 0
    penstock_lock(&state.committing)
    begin = load_position(&state.committed)
    end = load_position(&state.wrote)
    if state.write_buffer != NULL and end > begin:
        result = state_write(state, begin, state.write_buffer + begin, end - begin)
        if result == 0:
            store_position(&state.committed, end)
    penstock_unlock(&state.committing)
    return result


cdef class StatedFile:
    """A file as its state has it: where it begins, how far it is written, committed and synced. ``Mapping`` maps it."""

    def __cinit__(self):
        self.state.base = NULL
        self.state.write_buffer = NULL
        self.state.fd = -1
        self.state.stored = 1  # nobody knows yet how it is written
        self.path = ""

    @property
    def file_from(self):
        return self.state.file_from

    @property
    def size(self):
        return self.state.size

    @property
    def writable(self):
        return bool(self.state.writable)

    @property
    def is_full(self):
        return load_position(&self.state.wrote) == self.state.size

    @property
    def read_position(self):
        """End of what readers may see."""
        return read_position(&self.state)

    @property
    def wrote_position(self):
        return load_position(&self.state.wrote)

    @wrote_position.setter
    def wrote_position(self, int64_t value):
        self._check_position(value)
        store_position(&self.state.wrote, value)

    @property
    def committed_position(self):
        return load_position(&self.state.committed)

    @committed_position.setter
    def committed_position(self, int64_t value):
        self._check_position(value)
        store_position(&self.state.committed, value)

    @property
    def flushed_position(self):
        return load_position(&self.state.flushed)

    @flushed_position.setter
    def flushed_position(self, int64_t value):
        self._check_position(value)
        store_position(&self.state.flushed, value)

    @property
    def store_timestamp(self):
        return load_position(&self.state.store_timestamp)

    @store_timestamp.setter
    def store_timestamp(self, int64_t value):
        store_position(&self.state.store_timestamp, value)

    def _check_position(self, int64_t value):
        if value < 0 or value > self.state.size:
            raise ValueError(f"{self.path}: position {value} is outside 0..{self.state.size}")

    def _check_range(self, int64_t position, int64_t size):
        if position < 0 or size < 0 or position > self.state.size - size:
            raise ValueError(f"{self.path}: {size} bytes at {position} are outside the file of {self.state.size}")

    def fileno(self):
        """The descriptor, -1 for memory."""
        return self.state.fd

    # -- fault injection --------------------------------------------------------------------------------------

    def inject(self, *, int write_error=-1, int64_t write_times=0, int sync_error=-1, int64_t sync_times=0):
        """Make native writes or syncs fail with an errno (0: no more; -1: leave as it is), ``times`` times or always."""
        if write_error >= 0:
            self.state.write_error = write_error
            self.state.write_error_times = write_times
        if sync_error >= 0:
            self.state.sync_error = sync_error
            self.state.sync_error_times = sync_times

    @property
    def injected(self):
        """(write errno, times left, sync errno, times left): what is still to come."""
        return (self.state.write_error, self.state.write_error_times,
                self.state.sync_error, self.state.sync_error_times)
