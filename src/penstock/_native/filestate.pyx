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
    if state.fd >= 0:
        return penstock_write_all(state.fd, data, n, position)
    memcpy(state.base + position, data, n)
    return 0


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
