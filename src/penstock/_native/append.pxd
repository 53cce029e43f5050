from libc.stdint cimport int32_t, int64_t, uint8_t

from penstock._native.encode cimport Buffer, Encoder
from penstock._native.filestate cimport FileState
from penstock._native.flush cimport Flusher
from penstock._native.mapping cimport Mapping
from penstock._native.putresult cimport PutResults
from penstock._native.queue cimport QueueState
from penstock._native.signal cimport Signal
from penstock._native.threads cimport pthread_mutex_t

cdef class Appender:
    cdef pthread_mutex_t mutex
    cdef Encoder encoder
    cdef Flusher flusher
    cdef Signal signal
    cdef Mapping mapping
    cdef FileState* file
    cdef Buffer* buffers              # free ones; the interpreter lock guards the list
    cdef object roll                  # () -> None when a new file is in use, else why there is none
    cdef public int mode
    cdef public bint sync
    cdef public double sync_timeout
    cdef public str unavailable       # why nothing may be written, None while all is well
    cdef int64_t locked_since
    cdef str why                      # there was no file to roll to
    cdef public int64_t busy_after_ms
    cdef readonly int64_t put_count
    cdef readonly int64_t put_bytes
    cdef Buffer* take_buffer(self) except NULL
    cdef void give_buffer(self, Buffer* b) noexcept
    cdef void take_lock(self) noexcept
    cdef int append(self, Buffer* b, int32_t first, int64_t now, bint whole, int32_t* next) noexcept nogil
    cdef int append_all(self, Buffer* b, int64_t now, bint whole, bint system_clock, bint locked, int32_t* done) except? -1000
    cdef int refuse_all(self, PutResults results, Py_ssize_t count) except -1
    cdef int note(self, PutResults results, Buffer* b, int code) except -1
    cdef int append_noted(self, PutResults results, Buffer* b, int64_t now, bint wait, bint whole) except -1
    cdef int wait_disk(self, int64_t end) except -1
    cdef object store(self, object message, int64_t now, bint hooked, bint locked, bint stay, int32_t messages, bint* waits)
    cdef int take_records(self, Buffer* b, const int32_t[::1] slots, list queues) except -1
    cdef const char* take_record(self, Buffer* b, QueueState* queue) noexcept nogil
