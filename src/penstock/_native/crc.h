/* CRC-32 (IEEE, reflected), as zlib computes it.
 *
 * Every stored body is summed once on the way in and once in recovery, so the speed of this function bounds both.
 * Carry-less multiplication folds 64 bytes a step where the processor has it; eight tables do the rest.
 */
#ifndef PENSTOCK_CRC_H
#define PENSTOCK_CRC_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t penstock_crc_table[8][256];
static int penstock_crc_ready = 0;
static int penstock_crc_folds = 0;

static void penstock_crc_setup(void) {
    if (penstock_crc_ready) return;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = (c >> 1) ^ (0xEDB88320u & (0u - (c & 1)));
        penstock_crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++) {
            uint32_t c = penstock_crc_table[t - 1][i];
            penstock_crc_table[t][i] = (c >> 8) ^ penstock_crc_table[0][c & 0xFF];
        }
#if defined(__x86_64__)
    __builtin_cpu_init();
    penstock_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    penstock_crc_ready = 1;
}

/* `state` is the inverted running value. */
static uint32_t penstock_crc_tables(uint32_t state, const uint8_t *p, size_t n) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (n >= 8) {
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + 4, 4);
        a ^= state;
        state = penstock_crc_table[7][a & 0xFF] ^ penstock_crc_table[6][(a >> 8) & 0xFF] ^
                penstock_crc_table[5][(a >> 16) & 0xFF] ^ penstock_crc_table[4][a >> 24] ^
                penstock_crc_table[3][b & 0xFF] ^ penstock_crc_table[2][(b >> 8) & 0xFF] ^
                penstock_crc_table[1][(b >> 16) & 0xFF] ^ penstock_crc_table[0][b >> 24];
        p += 8;
        n -= 8;
    }
#endif
    while (n--) state = (state >> 8) ^ penstock_crc_table[0][(state ^ *p++) & 0xFF];
    return state;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* x^k mod P for the fold distances, bit-reflected: 512 bits, 128 bits, 64 bits, then Barrett's pair. */
__attribute__((target("pclmul,sse4.1")))
static inline __m128i penstock_fold(__m128i acc, __m128i k, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(acc, k, 0x00);
    __m128i high = _mm_clmulepi64_si128(acc, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1")))
static uint32_t penstock_crc_fold(uint32_t state, const uint8_t *p, size_t n) {
    const __m128i by512 = _mm_set_epi64x(0x01c6e41596LL, 0x0154442bd4LL);
    const __m128i by128 = _mm_set_epi64x(0x00ccaa009eLL, 0x01751997d0LL);
    const __m128i by64 = _mm_set_epi64x(0, 0x0163cd6124LL);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641LL, 0x01db710641LL);
    const __m128i low32 = _mm_set_epi32(0, -1, 0, -1);
    __m128i a = _mm_loadu_si128((const __m128i *)p);
    __m128i b = _mm_loadu_si128((const __m128i *)(p + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(p + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(p + 48));
    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)state));
    p += 64;
    n -= 64;
    while (n >= 64) {
        a = penstock_fold(a, by512, _mm_loadu_si128((const __m128i *)p));
        b = penstock_fold(b, by512, _mm_loadu_si128((const __m128i *)(p + 16)));
        c = penstock_fold(c, by512, _mm_loadu_si128((const __m128i *)(p + 32)));
        d = penstock_fold(d, by512, _mm_loadu_si128((const __m128i *)(p + 48)));
        p += 64;
        n -= 64;
    }
    a = penstock_fold(a, by128, b);
    a = penstock_fold(a, by128, c);
    a = penstock_fold(a, by128, d);
    while (n >= 16) {
        a = penstock_fold(a, by128, _mm_loadu_si128((const __m128i *)p));
        p += 16;
        n -= 16;
    }
    b = _mm_clmulepi64_si128(a, by128, 0x10);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
    b = _mm_srli_si128(a, 4);
    a = _mm_clmulepi64_si128(_mm_and_si128(a, low32), by64, 0x00);
    a = _mm_xor_si128(a, b);
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low32), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low32), barrett, 0x00);
    a = _mm_xor_si128(a, b);
    state = (uint32_t)_mm_extract_epi32(a, 1);
    return n ? penstock_crc_tables(state, p, n) : state;
}
#endif

static uint32_t penstock_crc32(const uint8_t *p, size_t n) {
    uint32_t state = 0xFFFFFFFFu;
#if defined(__x86_64__)
    if (n >= 64 && penstock_crc_folds) return ~penstock_crc_fold(state, p, n);
#endif
    return ~penstock_crc_tables(state, p, n);
}
#endif
