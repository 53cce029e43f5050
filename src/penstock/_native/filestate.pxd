# cython: language_level=3
"""The state of one file that native code works on, and the class that shows its positions."""

from libc.stdint cimport int64_t, uint8_t


cdef extern from "mapping_os.h" nogil:
    int64_t penstock_load(const int64_t* place) noexcept
    void penstock_store(int64_t* place, int64_t value) noexcept
    int64_t penstock_look(const int64_t* place) noexcept
    void penstock_say(int64_t* place, int64_t value) noexcept
    void penstock_yield() noexcept


cdef struct FileState:
    uint8_t* base            # the mapping, or a bytearray's memory
    uint8_t* write_buffer    # `size` bytes borrowed from the transient pool, or NULL
    int fd                   # -1: memory
    int writable
    int write_error          # errno to inject, 0: none
    int sync_error
    int64_t file_from
    int64_t size
    int64_t wrote
    int64_t committed
    int64_t flushed
    int64_t store_timestamp
    int64_t write_error_times    # how often the injected error comes, 0: always
    int64_t sync_error_times
    int committing               # held while the write buffer is read or taken away
    int64_t claimed              # writers write, or wrote, before it
    int64_t zeroing              # zeros are being written from one byte before it on; 0: nowhere
    int stored                   # something was stored through the mapping since its pages were made ready


cdef inline int64_t load_position(const int64_t* place) noexcept nogil:
    return penstock_load(place)


cdef inline void store_position(int64_t* place, int64_t value) noexcept nogil:
    penstock_store(place, value)


cdef inline int64_t read_position(FileState* state) noexcept nogil:
    """End of what readers may see: what was committed when there is a write buffer, else what was written."""
    if state.write_buffer != NULL:
        return penstock_load(&state.committed)
    return penstock_load(&state.wrote)


cdef inline void claim(FileState* state, int64_t end) noexcept nogil:
    """To be called before bytes up to `end` are written: who prepares pages writes no zeros there from now on."""
    cdef int64_t zeroing
    if end > state.claimed:
        penstock_say(&state.claimed, end)
    while True:
        zeroing = penstock_look(&state.zeroing)
        if zeroing == 0 or zeroing > end:
            return
        penstock_yield()


cdef int state_write(FileState* state, int64_t position, const uint8_t* data, int64_t n) noexcept nogil
cdef int state_write_ahead(FileState* state, int64_t position, int64_t end) noexcept nogil
cdef int state_sync(FileState* state) noexcept nogil
cdef int state_commit(FileState* state) noexcept nogil
cdef int state_sync_for_good(FileState* state) noexcept nogil
cdef int state_injected(int* error, int64_t* times) noexcept nogil


cdef class StatedFile:
    cdef FileState state
    cdef readonly str path
