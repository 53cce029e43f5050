"""Mutex and condition of the platform, with deadlines on the monotonic clock."""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <time.h>
    static inline int64_t penstock_wall_ms(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000; }
    static inline int64_t penstock_steady_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }
    static inline int penstock_cond_init(pthread_cond_t *c) {
    #if defined(__APPLE__)
        return pthread_cond_init(c, NULL);
    #else
        pthread_condattr_t a; pthread_condattr_init(&a); pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
        int code = pthread_cond_init(c, &a); pthread_condattr_destroy(&a); return code;
    #endif
    }
    /* 0: signalled (or spurious); 1: the moment has passed. */
    static inline int penstock_cond_until(pthread_cond_t *c, pthread_mutex_t *m, int64_t steady_ns) {
    #if defined(__APPLE__)
        int64_t left = steady_ns - penstock_steady_ns(); if (left <= 0) return 1;
        struct timespec t = { left / 1000000000, left % 1000000000 };
        return pthread_cond_timedwait_relative_np(c, m, &t) == ETIMEDOUT;
    #else
        struct timespec t = { steady_ns / 1000000000, steady_ns % 1000000000 };
        return pthread_cond_timedwait(c, m, &t) == ETIMEDOUT;
    #endif
    }
    static inline int penstock_load_int(const int *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
    static inline void penstock_store_int(int *p, int v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
    """
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) noexcept nogil
    int pthread_mutex_destroy(pthread_mutex_t*) noexcept nogil
    int pthread_mutex_lock(pthread_mutex_t*) noexcept nogil
    int pthread_mutex_trylock(pthread_mutex_t*) noexcept nogil
    int pthread_mutex_unlock(pthread_mutex_t*) noexcept nogil
    int pthread_cond_destroy(pthread_cond_t*) noexcept nogil
    int pthread_cond_broadcast(pthread_cond_t*) noexcept nogil
    int pthread_cond_signal(pthread_cond_t*) noexcept nogil
    int cond_init "penstock_cond_init"(pthread_cond_t*) noexcept nogil
    int cond_until "penstock_cond_until"(pthread_cond_t*, pthread_mutex_t*, int64_t) noexcept nogil
    int64_t wall_ms "penstock_wall_ms"() noexcept nogil
    int64_t steady_ns "penstock_steady_ns"() noexcept nogil
    int load_int "penstock_load_int"(const int*) noexcept nogil
    void store_int "penstock_store_int"(int*, int) noexcept nogil
