/* What Mapping asks of the operating system, with the differences between Linux and macOS kept here.
 *
 * Every function returns 0 (or a count) on success and -errno on failure, restarts after EINTR, touches no Python
 * object and may be called without the interpreter lock.
 */
#ifndef PENSTOCK_MAPPING_OS_H
#define PENSTOCK_MAPPING_OS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/falloc.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; an older kernel answers EINVAL and we touch the pages ourselves */
#endif
#endif

#define PENSTOCK_PIECE (1 << 20)
#define PENSTOCK_PAGE 4096

static inline int64_t penstock_load(const int64_t *place) { return __atomic_load_n(place, __ATOMIC_ACQUIRE); }

static inline void penstock_store(int64_t *place, int64_t value) { __atomic_store_n(place, value, __ATOMIC_RELEASE); }

/* Two who each say what they do before they look at what the other does: at least one of them sees the other. */
static inline int64_t penstock_look(const int64_t *place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }

static inline void penstock_say(int64_t *place, int64_t value) { __atomic_store_n(place, value, __ATOMIC_SEQ_CST); }

static inline void penstock_yield(void) { sched_yield(); }

/* A lock held for the length of one write at most. */
static inline void penstock_lock(int *lock)
{
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}

static inline void penstock_unlock(int *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

static inline int penstock_write_all(int fd, const uint8_t *data, int64_t count, int64_t position)
{
    while (count > 0) {
        ssize_t done = pwrite(fd, data, (size_t)count, (off_t)position);
        if (done < 0) {
            if (errno == EINTR) continue;
            return -errno;
        }
        if (done == 0) return -EIO;
        data += done;
        position += done;
        count -= done;
    }
    return 0;
}

/* Bytes read, less than count only at the end of the file. */
static inline int64_t penstock_read_all(int fd, uint8_t *data, int64_t count, int64_t position)
{
    int64_t total = 0;
    while (total < count) {
        ssize_t done = pread(fd, data + total, (size_t)(count - total), (off_t)(position + total));
        if (done < 0) {
            if (errno == EINTR) continue;
            return -errno;
        }
        if (done == 0) break;
        total += done;
    }
    return total;
}

/* Data on the medium. fdatasync also writes what was stored through a shared mapping. */
static inline int penstock_sync(int fd, void *base, int64_t size)
{
#ifdef __APPLE__
    if (base != NULL && msync(base, (size_t)size, MS_SYNC) != 0) return -errno;
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
    return fsync(fd) == 0 ? 0 : -errno;
#else
    (void)base;
    (void)size;
    while (fdatasync(fd) != 0) {
        if (errno != EINTR) return -errno;
    }
    return 0;
#endif
}

static inline int penstock_fsync(int fd)
{
#ifdef __APPLE__
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
    while (fsync(fd) != 0) {
        if (errno != EINTR) return -errno;
    }
    return 0;
}

static inline int penstock_sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (fd < 0) return -errno;
    int result = 0;
    while (fsync(fd) != 0) {
        if (errno == EINTR) continue;
        /* some network and user-space file systems have no such operation; that is not a failed sync */
        result = (errno == EINVAL || errno == ENOTSUP || errno == EROFS) ? 0 : -errno;
        break;
    }
    close(fd);
    return result;
}

/* Blocks for [from, to) without changing a byte of it: read each piece, write it back. Only for a file that
 * nobody writes meanwhile and that is already `to` bytes long. */
static inline int penstock_rewrite(int fd, int64_t from, int64_t to)
{
    uint8_t *piece = (uint8_t *)malloc(PENSTOCK_PIECE);
    if (piece == NULL) return -ENOMEM;
    int result = 0;
    while (from < to && result == 0) {
        int64_t count = to - from < PENSTOCK_PIECE ? to - from : PENSTOCK_PIECE;
        int64_t found = penstock_read_all(fd, piece, count, from);
        if (found < 0) {
            result = (int)found;
        } else if (found < count) {
            result = -EIO; /* somebody cuts the file under us */
        } else {
            result = penstock_write_all(fd, piece, count, from);
            from += count;
        }
    }
    free(piece);
    return result;
}

/* The file is `size` bytes long and all its blocks are its own: a store into the mapping cannot meet a full disk. */
static inline int penstock_reserve(int fd, int64_t size)
{
    int64_t old_size;
    struct stat status;
    if (fstat(fd, &status) != 0) return -errno;
    old_size = (int64_t)status.st_size;
#ifdef __linux__
    for (;;) {
        if (fallocate(fd, 0, 0, (off_t)size) == 0) return 0;
        if (errno == EINTR) continue;
        if (errno != EOPNOTSUPP && errno != ENOSYS) return -errno;
        break;
    }
#endif
    if (old_size < size && ftruncate(fd, (off_t)size) != 0) return -errno;
    return penstock_rewrite(fd, 0, size);
}

static inline int penstock_resize(int fd, int64_t size)
{
    while (ftruncate(fd, (off_t)size) != 0) {
        if (errno != EINTR) return -errno;
    }
    return 0;
}

static inline int penstock_map(int fd, int64_t size, int writable, uint8_t **base)
{
    void *place = mmap(NULL, (size_t)size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (place == MAP_FAILED) return -errno;
    *base = (uint8_t *)place;
    return 0;
}

static inline void penstock_unmap(uint8_t *base, int64_t size) { (void)munmap(base, (size_t)size); }

/* Zeros in [from, to). A reserved file keeps its blocks (a hole in it could meet a full disk later); a sparse file
 * gives them back. */
static inline int penstock_zero(int fd, int64_t from, int64_t to, int keep_blocks)
{
    static const uint8_t zeros[65536];
#ifdef __linux__
    int mode = (keep_blocks ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE) | FALLOC_FL_KEEP_SIZE;
    for (;;) {
        if (fallocate(fd, mode, (off_t)from, (off_t)(to - from)) == 0) return 0;
        if (errno == EINTR) continue;
        if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) return -errno;
        break;
    }
#else
    (void)keep_blocks;
#endif
    while (from < to) {
        int64_t count = to - from < (int64_t)sizeof(zeros) ? to - from : (int64_t)sizeof(zeros);
        int result = penstock_write_all(fd, zeros, count, from);
        if (result != 0) return result;
        from += count;
    }
    return 0;
}

/* Writable page-table entries for [from, to) without changing a byte: safe beside a writer in the same pages. */
static inline int penstock_populate(uint8_t *base, int64_t from, int64_t to)
{
    int64_t page;
    from -= from % PENSTOCK_PAGE;
    if (from >= to) return 0;
#ifdef __linux__
    for (;;) {
        if (madvise(base + from, (size_t)(to - from), MADV_POPULATE_WRITE) == 0) return 0;
        if (errno == EINTR) continue;
        if (errno != EINVAL && errno != ENOSYS) return -errno;
        break;
    }
#endif
    for (page = from; page < to; page += PENSTOCK_PAGE) {
        (void)__atomic_fetch_or(base + page, 0, __ATOMIC_RELAXED); /* dirties the page, keeps the byte */
    }
    return 0;
}

/* Whether blocks in [from, to) are reserved but never were written: the system reads them as zeros without looking. */
static inline int penstock_unwritten(int fd, int64_t from, int64_t to)
{
#if defined(__linux__) && defined(SEEK_DATA)
    off_t data = lseek(fd, (off_t)from, SEEK_DATA);
    return data < 0 ? errno == ENXIO : (int64_t)data >= to;
#else
    (void)fd;
    (void)from;
    (void)to;
    return 0;
#endif
}

static inline void penstock_advise_random(int fd, void *base, int64_t size)
{
    (void)fd;
    if (base != NULL) (void)madvise(base, (size_t)size, MADV_RANDOM);
#ifdef __linux__
    if (fd >= 0) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#endif
}

/* Forget clean cached pages. The page-table entries go first: a mapped page is never dropped. */
static inline void penstock_drop_cache(int fd, void *base, int64_t size)
{
#ifdef __linux__
    if (base != NULL) (void)madvise(base, (size_t)size, MADV_DONTNEED);
    if (fd >= 0) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#else
    (void)fd;
    (void)base;
    (void)size;
#endif
}

#endif
