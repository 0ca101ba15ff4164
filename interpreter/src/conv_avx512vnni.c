#include "conv_x86.h"

#ifdef NMP_X86
#include <immintrin.h>

NMP_TARGET_BEGIN(NMP_TARGET_AVX512VNNI)

#define V __m512i
#define LANES 16
#define ZERO() _mm512_setzero_si512()
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define ADD(a, b) _mm512_add_epi32(a, b)
#define BROADCAST(i) _mm512_set1_epi32(i)
#define DOT_BYTES(s, x, w) _mm512_dpbusd_epi32(s, x, w)
#define DOT_WORDS(s, x, w) _mm512_dpwssd_epi32(s, x, w)

/* 8 int32 as int64 */
static inline V widened(const int32_t *p) {
  return _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void add_sums(int64_t *to, const int32_t *from, int shift) {
  for (int i = 0; i < LANES; i += 8) {
    STORE(to + i, _mm512_add_epi64(LOAD(to + i), _mm512_slli_epi64(widened(from + i), (unsigned)shift)));
  }
}

#include "tile_x86.h"

TILES(TILES_14, bytes)
TILES(TILES_14, mixed)
TILES(TILES_7, planes)

/* The first n of 32 bits, or all when there are more. */
static inline uint32_t mask_of(size_t n) {
  return n < 32 ? (1u << n) - 1 : UINT32_MAX;
}

/* Lanes of one vector and of two are finished alike, the second one may be empty. */
static void finish_8(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, int8_t *y) {
  const V order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const V lo = _mm512_set1_epi8((char)c->lo), hi = _mm512_set1_epi8((char)c->hi);
  const V shift0 = LOAD(t->panel->shift), shift1 = LOAD(t->panel->shift + LANES);
  const size_t second = lanes > LANES ? LANES : 0;
  const uint32_t mask = mask_of(n);
  for (size_t r = 0; r < rows; r += 2) {
    const int32_t *a = t->sums + r * lanes, *b = r + 1 < rows ? a + lanes : a;
    const V a0 = _mm512_srav_epi32(LOAD(a), shift0), a1 = _mm512_srav_epi32(LOAD(a + second), shift1);
    const V b0 = _mm512_srav_epi32(LOAD(b), shift0), b1 = _mm512_srav_epi32(LOAD(b + second), shift1);
    const V packed = _mm512_packs_epi16(_mm512_packs_epi32(a0, a1), _mm512_packs_epi32(b0, b1));
    const V q = _mm512_permutexvar_epi32(order, _mm512_min_epi8(_mm512_max_epi8(packed, lo), hi));
    _mm256_mask_storeu_epi8(y + r * c->out, mask, _mm512_castsi512_si256(q));
    if (r + 1 < rows) {
      _mm256_mask_storeu_epi8(y + (r + 1) * c->out, mask, _mm512_extracti64x4_epi64(q, 1));
    }
  }
}

static void finish_16(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, int16_t *y) {
  const V order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const V lo = _mm512_set1_epi16((short)c->lo), hi = _mm512_set1_epi16((short)c->hi);
  const V shift0 = LOAD(t->panel->shift), shift1 = LOAD(t->panel->shift + LANES);
  const size_t second = lanes > LANES ? LANES : 0;
  for (size_t r = 0; r < rows; r++) {
    const int32_t *a = t->sums + r * lanes;
    const V a0 = _mm512_srav_epi32(LOAD(a), shift0), a1 = _mm512_srav_epi32(LOAD(a + second), shift1);
    const V packed = _mm512_packs_epi32(a0, a1);
    const V q = _mm512_permutexvar_epi64(order, _mm512_min_epi16(_mm512_max_epi16(packed, lo), hi));
    _mm512_mask_storeu_epi16(y + r * c->out, mask_of(n), q);
  }
}

static void finish(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  if (!t->panel->exact) {
    nmp_x86_scale(c, t->sums, 0, rows, lanes, n, t->panel, y);
  } else if (c->y_wide) {
    finish_16(c, t, rows, lanes, n, y);
  } else {
    finish_8(c, t, rows, lanes, n, y);
  }
}

static void finish_wide(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  const V zero = ZERO(), one = _mm512_set1_epi64(1);
  const __m256i lo = _mm256_set1_epi32(c->lo), hi = _mm256_set1_epi32(c->hi);
  for (size_t i = 0; i < n; i += 8) {
    const V shift = widened(t->panel->shift + i), bias = widened(t->panel->bias + i);
    const V half = _mm512_sllv_epi64(one, _mm512_sub_epi64(shift, one)); /* zero for shifts of none or less */
    const V right = _mm512_max_epi64(shift, zero), left = _mm512_max_epi64(_mm512_sub_epi64(zero, shift), zero);
    const __mmask8 mask = (__mmask8)mask_of(n - i);
    for (size_t r = 0; r < rows; r++) {
      const V sum = _mm512_srav_epi64(_mm512_add_epi64(LOAD(t->wide + r * lanes + i), half), right);
      const __m256i whole = _mm512_cvtsepi64_epi32(_mm512_add_epi64(_mm512_sllv_epi64(sum, left), bias));
      const __m256i q = _mm256_min_epi32(_mm256_max_epi32(whole, lo), hi);
      if (c->y_wide) {
        _mm_mask_storeu_epi16((int16_t *)y + r * c->out + i, mask, _mm256_cvtepi32_epi16(q));
      } else {
        _mm_mask_storeu_epi8((int8_t *)y + r * c->out + i, mask, _mm256_cvtepi32_epi8(q));
      }
    }
  }
}

NMP_TARGET_END

static const nmp_product int8_product = {1, 1, 0x80, 0, LANES, 14, load_bytes, bytes_tiles, finish};
static const nmp_product int8_int16_product = {2, 1, 0, 1, LANES, 14, load_words_8, mixed_tiles, finish_wide};
static const nmp_product int16_int8_product = {2, 1, 0, 1, LANES, 14, load_words_16, mixed_tiles, finish_wide};
static const nmp_product int16_product = {2, 2, 0, 1, LANES, 7, load_planes, planes_tiles, finish_wide};

NMP_X86_KERNEL(int8)
NMP_X86_KERNEL(int8_int16)
NMP_X86_KERNEL(int16_int8)
NMP_X86_KERNEL(int16)

const nmp_conv_kernel *nmp_conv_avx512vnni(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16_int8, &int16}};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
