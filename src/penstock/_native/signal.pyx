"""A wake-up that costs the sender one load while nobody sleeps."""

from libc.stdint cimport int64_t

from penstock._native.threads cimport (
    cond_init, cond_until, load_int, pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock, steady_ns, store_int,
)


cdef class Signal:
    """Waiters sleep until somebody notifies. A notification between `ticket` and `wait` is not lost."""

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        cond_init(&self.condition)

    def __dealloc__(self):
        pthread_cond_destroy(&self.condition)
        pthread_mutex_destroy(&self.mutex)

    cdef void notify_fast(self) noexcept nogil:
        """Wake sleepers, if there are any. What they look for must be published before this call."""
        if load_int(&self.sleeping):
            self.notify_all()

    cdef void notify_all(self) noexcept nogil:
        pthread_mutex_lock(&self.mutex)
        self.count += 1
        pthread_cond_broadcast(&self.condition)
        pthread_mutex_unlock(&self.mutex)

    def notify(self):
        with nogil:
            self.notify_all()

    def ticket(self):
        """Take before looking at the condition; `wait` returns at once if it was notified since."""
        cdef int64_t count
        with nogil:
            pthread_mutex_lock(&self.mutex)
            store_int(&self.sleeping, self.sleeping + 1)
            count = self.count
            pthread_mutex_unlock(&self.mutex)
        return count

    def drop(self):
        """Give a ticket back without waiting."""
        with nogil:
            pthread_mutex_lock(&self.mutex)
            store_int(&self.sleeping, self.sleeping - 1)
            pthread_mutex_unlock(&self.mutex)

    def wait(self, int64_t ticket, double seconds):
        """Sleep until notified or `seconds` passed; gives the ticket back. True if notified."""
        cdef int64_t until = steady_ns() + <int64_t> (seconds * 1e9)
        cdef bint notified
        with nogil:
            pthread_mutex_lock(&self.mutex)
            while self.count == ticket and not cond_until(&self.condition, &self.mutex, until):
                pass
            notified = self.count != ticket
            store_int(&self.sleeping, self.sleeping - 1)
            pthread_mutex_unlock(&self.mutex)
        return notified
