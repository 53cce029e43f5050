"""Big-endian loads and stores: every number on disk is big-endian (spec 0)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline int16_t penstock_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return (int16_t)__builtin_bswap16(v); }
    static inline int32_t penstock_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)__builtin_bswap32(v); }
    static inline int64_t penstock_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)__builtin_bswap64(v); }
    static inline void penstock_put16(uint8_t *p, int16_t x) { uint16_t v = __builtin_bswap16((uint16_t)x); memcpy(p, &v, 2); }
    static inline void penstock_put32(uint8_t *p, int32_t x) { uint32_t v = __builtin_bswap32((uint32_t)x); memcpy(p, &v, 4); }
    static inline void penstock_put64(uint8_t *p, int64_t x) { uint64_t v = __builtin_bswap64((uint64_t)x); memcpy(p, &v, 8); }
    """
    int16_t get16 "penstock_get16"(const uint8_t* p) noexcept nogil
    int32_t get32 "penstock_get32"(const uint8_t* p) noexcept nogil
    int64_t get64 "penstock_get64"(const uint8_t* p) noexcept nogil
    void put16 "penstock_put16"(uint8_t* p, int16_t x) noexcept nogil
    void put32 "penstock_put32"(uint8_t* p, int32_t x) noexcept nogil
    void put64 "penstock_put64"(uint8_t* p, int64_t x) noexcept nogil
