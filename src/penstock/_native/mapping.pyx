# cython: language_level=3
"""A file of fixed size, mapped, with its descriptor and its three positions in one C struct.

The mapping is shared. Views keep it alive: ``close`` marks it closed, and the memory and the descriptor go when the
last view and the last running call are done, so no thread ever stands on unmapped memory.
"""

import os

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer, PyBUF_SIMPLE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EBADF, EINVAL, ENXIO
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset
from posix.unistd cimport close as posix_close

from penstock._native.filestate cimport (
    StatedFile, claim, load_position, state_commit, state_injected, state_sync, state_sync_for_good, state_write, state_write_ahead,
    store_position,
)


cdef extern from "mapping_os.h" nogil:
    void penstock_lock(int* lock) noexcept
    void penstock_unlock(int* lock) noexcept
    int64_t penstock_read_all(int fd, uint8_t* data, int64_t count, int64_t position) noexcept
    int penstock_fsync(int fd) noexcept
    int penstock_sync_directory(const char* path) noexcept
    int penstock_reserve(int fd, int64_t size) noexcept
    int penstock_resize(int fd, int64_t size) noexcept
    int penstock_map(int fd, int64_t size, int writable, uint8_t** base) noexcept
    void penstock_unmap(uint8_t* base, int64_t size) noexcept
    int penstock_zero(int fd, int64_t begin, int64_t end, int keep_blocks) noexcept
    int penstock_populate(uint8_t* base, int64_t begin, int64_t end) noexcept
    void penstock_advise_random(int fd, void* base, int64_t size) noexcept
    void penstock_drop_cache(int fd, void* base, int64_t size) noexcept

# Below this a copy is shorter than handing the interpreter lock to somebody else.
cdef int64_t LARGE_COPY = 65536


cdef object _os_error(int negative, object path):
    return OSError(-negative, os.strerror(-negative), path)


@cython.no_gc_clear  # the collector would forget whose buffer it has to give back
cdef class Mapping(StatedFile):
    """One mapped file, or the memory of a ``bytearray`` that stands for one. Made by ``open`` and ``over``.

    Raises ``OSError`` with errno and filename for whatever the system refuses, ``ValueError`` for a range outside
    the file or a closed mapping.
    """

    def __init__(self):
        raise TypeError("use Mapping.open(...) or Mapping.over(...)")

    def __dealloc__(self):
        self.closed = True
        self.exports = 0
        self._release()

    @classmethod
    def open(cls, path, int64_t size, *, bint writable=True, bint create=False, bint reserve=False,
             int64_t file_from=0, bint advise_random=True):
        """Map ``size`` bytes of the file at ``path``.

        ``create`` makes it (or brings a shorter one to ``size``) and syncs its folder; ``reserve`` gives it all its
        blocks before it is mapped, so a full disk is an error here and never a signal later. A creation that fails
        leaves no file behind. Without ``create`` a file shorter than ``size`` is refused.
        """
        cdef Mapping self = Mapping.__new__(Mapping)
        cdef int fd = -1
        cdef int result = 0
        cdef bint made = False
        cdef bint resized = False
        cdef int64_t old_size = 0
        cdef bytes folder
        cdef const char* folder_chars
        cdef uint8_t* base = NULL
        path = os.fspath(path)
        if size <= 0:
            raise ValueError(f"{path}: a mapping needs a positive size, got {size}")
        if (create or reserve) and not writable:
            raise ValueError(f"{path}: only a writable mapping creates or reserves")
        folder = os.fsencode(os.path.dirname(path) or ".")
        folder_chars = folder
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        if create:
            try:
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
                made = True
            except FileExistsError:
                pass
        if fd < 0:
            fd = os.open(path, flags)
        try:
            old_size = os.fstat(fd).st_size
            if (old_size > size and create) or (old_size < size and not create):
                raise OSError(EINVAL, f"file is {old_size} bytes long, not {size}", path)
            resized = old_size < size
            with nogil:
                if reserve:
                    result = penstock_reserve(fd, size)
                elif resized:
                    result = penstock_resize(fd, size)
                if result == 0 and resized:
                    result = penstock_fsync(fd)
                if result == 0 and made:
                    result = penstock_sync_directory(folder_chars)
                if result == 0:
                    result = penstock_map(fd, size, writable, &base)
            if result:
                raise _os_error(result, path)
        except BaseException:
            if made:
                os.unlink(path)
            elif resized:
                os.ftruncate(fd, old_size)
            os.close(fd)
            raise
        self.state.base = base
        self.state.fd = fd
        self.state.writable = writable
        self.state.file_from = file_from
        self.state.size = size
        self.path = os.fsdecode(path)
        self.reserved = reserve
        if advise_random:
            self.advise_random()
        return self

    @classmethod
    def over(cls, memory, int64_t file_from=0, owner=None, *, path="", bint writable=True, bint reserved=True):
        """A mapping over ``memory`` (a bytearray, which cannot be resized while this lives).

        ``owner.before("write" | "sync" | "allocate")`` is asked before each call that would reach a disk and may raise OSError;
        ``owner.on_sync()`` is told after each sync.
        """
        cdef Mapping self = Mapping.__new__(Mapping)
        PyObject_GetBuffer(memory, &self._memory, PyBUF_WRITABLE)
        self._holds_memory = True
        self.state.base = <uint8_t*>self._memory.buf
        self.state.size = self._memory.len
        self.state.writable = writable
        self.state.file_from = file_from
        self.owner = owner
        self.path = path
        self.reserved = reserved
        return self

    # -- life -------------------------------------------------------------------------------------------------

    cdef int pin(self) except -1:
        """Keep memory and descriptor until ``unpin``; ValueError when closed. Call with the interpreter lock."""
        if self.closed:
            raise ValueError(f"{self.path}: the mapping is closed")
        self.exports += 1
        return 0

    cdef void unpin(self) noexcept:
        self.exports -= 1
        if self.closed and self.exports == 0:
            self._release()

    cdef void _release(self) noexcept:
        cdef uint8_t* base = self.state.base
        cdef int fd = self.state.fd
        self.state.base = NULL
        self.state.fd = -1
        self.state.write_buffer = NULL
        if self._holds_buffer:
            self._holds_buffer = False
            PyBuffer_Release(&self._buffer)
        if self._holds_memory:
            self._holds_memory = False
            PyBuffer_Release(&self._memory)
        elif base != NULL:
            with nogil:
                penstock_unmap(base, self.state.size)
        if fd >= 0:
            with nogil:
                posix_close(fd)

    def close(self):
        """No new views or calls; memory and descriptor go with the last view. Closing twice is fine."""
        if not self.closed:
            self.closed = True
            if self.exports == 0:
                self._release()

    def hold(self):
        """Keep the memory mapped until ``release``, also beyond ``close``."""
        self.pin()

    def release(self):
        """Undo one ``hold``."""
        if self.exports <= 0:
            raise ValueError(f"{self.path}: released more often than held")
        self.unpin()

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.closed:
            raise BufferError(f"{self.path}: the mapping is closed")
        PyBuffer_FillInfo(buffer, self, self.state.base, <Py_ssize_t>self.state.size,
                          not (self._export_writable and self.state.writable), flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.unpin()

    def __len__(self):
        return self.state.size

    def __repr__(self):
        return (f"<Mapping {self.path!r} size={self.state.size} wrote={self.wrote_position}"
                f"{' closed' if self.closed else ''}>")

    @property
    def unmapped(self):
        """True when closed and the last view is gone."""
        return self.state.base == NULL

    # -- reading ----------------------------------------------------------------------------------------------

    def view(self, int64_t position, int64_t size):
        """A read-only view without a copy. The memory stays mapped while it lives."""
        self._check_range(position, size)
        return memoryview(self)[position:position + size]

    def view_writable(self, int64_t position, int64_t size):
        """A view that writes into the mapping; only for a mapping opened writable."""
        if not self.state.writable:
            raise OSError(EBADF, os.strerror(EBADF), self.path)
        self._check_range(position, size)
        self._export_writable = True
        try:
            whole = memoryview(self)
        finally:
            self._export_writable = False
        return whole[position:position + size]

    def read(self, int64_t position, int64_t size):
        """A copy, read through the descriptor: a cut file or a bad sector is an OSError, not a signal.

        Shorter than ``size`` only when the file on disk is.
        """
        cdef bytes result
        cdef uint8_t* target
        cdef int64_t found
        self._check_range(position, size)
        result = PyBytes_FromStringAndSize(NULL, size)
        target = <uint8_t*>PyBytes_AS_STRING(result)
        self.pin()
        try:
            if self.state.fd < 0:
                memcpy(target, self.state.base + position, size)
                return result
            with nogil:
                found = penstock_read_all(self.state.fd, target, size, position)
            if found < 0:
                raise _os_error(<int>found, self.path)
            return result if found == size else result[:found]
        finally:
            self.unpin()

    # -- writing ----------------------------------------------------------------------------------------------

    def append(self, data):
        """Copy ``data`` to the write position of the mapping and publish it; False, and nothing done, if it does
        not fit. Only one thread appends at a time: the caller's lock."""
        cdef Py_buffer source
        cdef int64_t position = load_position(&self.state.wrote)
        cdef uint8_t* target
        if not self.state.writable:
            raise OSError(EBADF, os.strerror(EBADF), self.path)
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            if source.len > self.state.size - position:
                return False
            self.pin()
            claim(&self.state, position + source.len)
            self.state.stored = 1
            target = self.state.base + position
            if source.len >= LARGE_COPY:
                with nogil:
                    memcpy(target, source.buf, source.len)
            else:
                memcpy(target, source.buf, source.len)
            store_position(&self.state.wrote, position + source.len)
            self.unpin()
            return True
        finally:
            PyBuffer_Release(&source)

    def write(self, int64_t position, data):
        """Write at ``position`` through the descriptor. Moves no position."""
        cdef Py_buffer source
        cdef int result
        self.pin()
        try:
            PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
            try:
                self._check_range(position, source.len)
                if self.owner is not None:
                    self.owner.before("write")
                with nogil:
                    result = state_write(&self.state, position, <const uint8_t*>source.buf, source.len)
            finally:
                PyBuffer_Release(&source)
            if result:
                raise _os_error(result, self.path)
        finally:
            self.unpin()

    def sync(self):
        """Everything written so far, through the mapping or the descriptor, is on disk when this returns."""
        cdef int result
        self.pin()
        try:
            if self.owner is not None:
                self.owner.before("sync")
            with nogil:
                result = state_sync(&self.state)
            if result:
                raise _os_error(result, self.path)
            if self.owner is not None:
                self.owner.on_sync()
        finally:
            self.unpin()

    def commit(self):
        """Write what the write buffer holds beyond the committed position; the new committed position."""
        cdef int result
        self.pin()
        try:
            if self.owner is not None and self.state.write_buffer != NULL:
                self.owner.before("write")
            with nogil:
                result = state_commit(&self.state)
            if result:
                raise _os_error(result, self.path)
            return load_position(&self.state.committed)
        finally:
            self.unpin()

    @property
    def has_write_buffer(self):
        return self.state.write_buffer != NULL

    def attach_write_buffer(self, buffer):
        """Append into ``buffer`` from now on; readers see what was committed. It must be at least the file's size.

        The buffer starts where the file stands: bytes before the write position are not copied into it.
        """
        if self.closed:
            raise ValueError(f"{self.path}: the mapping is closed")
        if self._holds_buffer:
            raise ValueError(f"{self.path}: has a write buffer already")
        PyObject_GetBuffer(buffer, &self._buffer, PyBUF_WRITABLE)
        if self._buffer.len < self.state.size:
            PyBuffer_Release(&self._buffer)
            raise ValueError(f"{self.path}: the write buffer is smaller than the file")
        self._holds_buffer = True
        store_position(&self.state.committed, load_position(&self.state.wrote))
        self.state.write_buffer = <uint8_t*>self._buffer.buf

    def detach_write_buffer(self):
        """Stop using the write buffer. Everything must be committed; nobody may be appending."""
        if not self._holds_buffer:
            return
        with nogil:
            penstock_lock(&self.state.committing)
        committed = load_position(&self.state.committed) == load_position(&self.state.wrote)
        if committed:
            self.state.write_buffer = NULL
        penstock_unlock(&self.state.committing)
        if not committed:
            raise ValueError(f"{self.path}: the write buffer holds uncommitted bytes")
        self._holds_buffer = False
        PyBuffer_Release(&self._buffer)

    # -- pages ------------------------------------------------------------------------------------------------

    def prepare(self, int64_t position, int64_t length, *, bint written=False):
        """Make the pages of a window ready for storing, without changing a byte: safe beside a running writer.

        ``written`` is for who writes through the descriptor: the blocks are written and synced, so that later syncs need
        no metadata commit. Otherwise the pages are mapped, unless nothing was stored through the mapping since the last
        time. Clipped to the file; does nothing unless the blocks are reserved (a hole must not be touched through the
        mapping).
        """
        cdef int64_t end = self.state.size
        cdef int result = 0
        if position < 0 or length < 0:
            raise ValueError(f"{self.path}: window of {length} bytes at {position}")
        if position >= end or not self.reserved or not self.state.writable or self.state.fd < 0:
            return
        if length < end - position:
            end = position + length
        self.pin()
        try:
            with nogil:
                if written:
                    result = state_write_ahead(&self.state, position, end)
                    if result == 0:
                        result = state_sync_for_good(&self.state)
                elif self.state.stored:
                    self.state.stored = 0
                    result = penstock_populate(self.state.base, position, end)
            if result:
                raise _os_error(result, self.path)
        finally:
            self.unpin()

    def reserve(self):
        """Give a sparse file all its blocks; its bytes stay. Nobody may write meanwhile."""
        cdef int result = 0
        if self.reserved:
            return
        if not self.state.writable:
            raise OSError(EBADF, os.strerror(EBADF), self.path)
        self.pin()
        try:
            if self.owner is not None:
                self.owner.before("allocate")
            with nogil:
                if self.state.fd >= 0:
                    result = penstock_reserve(self.state.fd, self.state.size)
            if result:
                raise _os_error(result, self.path)
            self.reserved = True
        finally:
            self.unpin()

    def data_extents(self, int64_t begin):
        """[(low, high)] of what may hold bytes other than zero from ``begin`` on: holes are left out where the system knows them."""
        extents = []
        self.pin()
        try:
            if self.state.fd < 0 or not hasattr(os, "SEEK_DATA"):
                return [(begin, self.state.size)] if begin < self.state.size else []
            at = begin
            while at < self.state.size:
                try:
                    low = os.lseek(self.state.fd, at, os.SEEK_DATA)
                    high = os.lseek(self.state.fd, low, os.SEEK_HOLE)
                except OSError as error:
                    if error.errno == ENXIO:
                        break
                    return [*extents, (at, self.state.size)]
                extents.append((low, min(high, self.state.size)))
                at = high
            return extents
        finally:
            self.unpin()

    def punch_zero(self, int64_t begin, int64_t end):
        """Zeros in [begin, end). A reserved file keeps its blocks, a sparse one gives them back. Not synced."""
        cdef int result = 0
        self._check_range(begin, end - begin)
        if not self.state.writable:
            raise OSError(EBADF, os.strerror(EBADF), self.path)
        if begin == end:
            return
        self.pin()
        try:
            if self.owner is not None:
                self.owner.before("write")
            with nogil:
                result = state_injected(&self.state.write_error, &self.state.write_error_times)
                if result:
                    result = -result
                elif self.state.fd >= 0:
                    result = penstock_zero(self.state.fd, begin, end, self.reserved)
                else:
                    memset(self.state.base + begin, 0, end - begin)
            if result:
                raise _os_error(result, self.path)
        finally:
            self.unpin()

    def advise_random(self):
        """No readahead: large folios behind a scan make every later small write and sync a large one."""
        self.pin()
        with nogil:
            if self.state.fd >= 0:
                penstock_advise_random(self.state.fd, self.state.base, self.state.size)
        self.unpin()

    def drop_cache(self):
        """Let the system forget the clean cached pages of this file."""
        self.pin()
        with nogil:
            if self.state.fd >= 0:
                penstock_drop_cache(self.state.fd, self.state.base, self.state.size)
        self.unpin()
