#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>

NMP_ISA_BEGIN(NMP_ISA_AVX512VBMI)

/* 256 bytes are four vectors: two for the negative x, two for the others. */
static NMP_LOOKUP(lookup_8to8) {
  const uint8_t *xs = x, *t = table;
  const __m512i a = _mm512_loadu_si512(t), b = _mm512_loadu_si512(t + 64);
  const __m512i c = _mm512_loadu_si512(t + 128), d = _mm512_loadu_si512(t + 192);
  uint8_t *ys = y;
  (void)lo;
  (void)hi;
  for (size_t i = 0; i < n; i += 64) {
    const __mmask64 some = n - i < 64 ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;
    const __m512i v = _mm512_maskz_loadu_epi8(some, xs + i);
    const __m512i negative = _mm512_permutex2var_epi8(a, v, b), other = _mm512_permutex2var_epi8(c, v, d);
    _mm512_mask_storeu_epi8(ys + i, some, _mm512_mask_mov_epi8(other, _mm512_movepi8_mask(v), negative));
  }
}

/* The bytes of 256 entries: planes[k] has their bytes k, as four vectors. */
static NMP_INLINE void load_planes(__m512i planes[4][4], const int32_t *table) {
  const __m512i eighths = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i fours = _mm512_mask_set1_epi32(_mm512_set1_epi32(0x0c080400), 0xff00, 0x0d090501);
  const __m512i first = _mm512_add_epi32(_mm512_mullo_epi32(eighths, _mm512_set1_epi32(0x10101010)), fours);
  const __m512i third = _mm512_add_epi8(first, _mm512_set1_epi8(2));
  for (int i = 0; i < 4; i++) {
    const __m512i a = _mm512_loadu_si512(table + 64 * i), b = _mm512_loadu_si512(table + 64 * i + 16);
    const __m512i c = _mm512_loadu_si512(table + 64 * i + 32), d = _mm512_loadu_si512(table + 64 * i + 48);
    for (int k = 0; k < 4; k += 2) {
      const __m512i at = k == 0 ? first : third; /* 32 bytes k of two vectors, then 32 bytes k + 1 */
      const __m512i low = _mm512_permutex2var_epi8(a, at, b), high = _mm512_permutex2var_epi8(c, at, d);
      planes[k][i] = _mm512_shuffle_i64x2(low, high, 0x44);
      planes[k + 1][i] = _mm512_shuffle_i64x2(low, high, 0xee);
    }
  }
}

static NMP_INLINE __m512i look_up(const __m512i bytes[4], __m512i at) {
  return _mm512_mask_mov_epi8(_mm512_permutex2var_epi8(bytes[0], at, bytes[1]), _mm512_movepi8_mask(at),
                              _mm512_permutex2var_epi8(bytes[2], at, bytes[3]));
}

/* 64 entries of a table, byte by byte. Dwords of `at` are transposed as a matrix of 4 x 4, so that what is unpacked in
 * lanes of 128 bits is in order.
 */
static NMP_INLINE void look_up_long(__m512i entries[4], __m512i planes[4][4], __m512i at) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i bytes[4];
  at = _mm512_permutexvar_epi32(order, at);
  for (int i = 0; i < 4; i++) {
    bytes[i] = look_up(planes[i], at);
  }
  const __m512i low = _mm512_unpacklo_epi8(bytes[0], bytes[1]), low2 = _mm512_unpackhi_epi8(bytes[0], bytes[1]);
  const __m512i high = _mm512_unpacklo_epi8(bytes[2], bytes[3]), high2 = _mm512_unpackhi_epi8(bytes[2], bytes[3]);
  entries[0] = _mm512_unpacklo_epi16(low, high);
  entries[1] = _mm512_unpackhi_epi16(low, high);
  entries[2] = _mm512_unpacklo_epi16(low2, high2);
  entries[3] = _mm512_unpackhi_epi16(low2, high2);
}

/* sum + a + b, of dwords that are at most 2^30. */
static NMP_INLINE __m512i add_long(__m512i sum, __m512i a, __m512i b) {
  const __m512i both = _mm512_add_epi32(a, b);
  sum = _mm512_add_epi64(sum, _mm512_srli_epi64(both, 32));
  return _mm512_add_epi64(sum, _mm512_and_si512(both, _mm512_set1_epi64(0xffffffff)));
}

static NMP_EXPONENTIALS(exponentials_8) {
  const __m512i most_of_all = _mm512_set1_epi8((char)most);
  const int8_t *xs = x;
  __m512i planes[4][4], entries[4], sum = _mm512_setzero_si512();
  size_t i = 0;
  load_planes(planes, table);
  for (; i + 64 <= n; i += 64) {
    look_up_long(entries, planes, _mm512_sub_epi8(most_of_all, _mm512_loadu_si512(xs + i)));
    for (size_t k = 0; k < 4; k++) {
      _mm512_storeu_si512(e + i + 16 * k, entries[k]);
    }
    sum = add_long(add_long(sum, entries[0], entries[1]), entries[2], entries[3]);
  }
  if (i < n) {
    const __mmask64 some = ((__mmask64)1 << (n - i)) - 1;
    look_up_long(entries, planes, _mm512_sub_epi8(most_of_all, _mm512_maskz_loadu_epi8(some, xs + i)));
    for (size_t k = 0; k < 4; k++) {
      const __mmask16 part = (__mmask16)(some >> 16 * k);
      entries[k] = _mm512_maskz_mov_epi32(part, entries[k]);
      if (part) {
        _mm512_mask_storeu_epi32(e + i + 16 * k, part, entries[k]);
      }
    }
    sum = add_long(add_long(sum, entries[0], entries[1]), entries[2], entries[3]);
  }
  return _mm512_reduce_add_epi64(sum);
}

void nmp_kernels_avx512vbmi(nmp_kernels *kernels) {
  kernels->exponentials[0] = exponentials_8;
  kernels->lookup[0] = lookup_8to8;
}

NMP_ISA_END
#endif
