#include "arch/x86/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_X86
#include <immintrin.h>

NMP_TARGET_BEGIN(NMP_TARGET_AVX512VNNI)

#define V __m512i
#define LANES 16
#define ZERO() _mm512_setzero_si512()
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define ADD(a, b) _mm512_add_epi32(a, b)
#define SRA8(a) _mm512_srai_epi32(a, 8)
#define XOR(a, b) _mm512_xor_si512(a, b)
#define BROADCAST(i) _mm512_set1_epi32(i)
#define DOT_BYTES(s, x, w) _mm512_dpbusd_epi32(s, x, w)
#define DOT_WORDS(s, x, w) _mm512_dpwssd_epi32(s, x, w)
#define JOINED

/* 8 int32 as int64 */
static inline V widened(const int32_t *p) {
  return _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void add_sums(int64_t *to, const int32_t *from, int shift) {
  for (int i = 0; i < LANES; i += 8) {
    STORE(to + i, _mm512_add_epi64(LOAD(to + i), _mm512_slli_epi64(widened(from + i), (unsigned)shift)));
  }
}

#include "arch/x86/tile.inc"
#define SUB(a, b) _mm512_sub_epi32(a, b)
#define SLL16(a) _mm512_slli_epi32(a, 16)
#define SRA16(a) _mm512_srai_epi32(a, 16)
#define SLLV(a, by) _mm512_sllv_epi32(a, by)
#define SRAV(a, by) _mm512_srav_epi32(a, by)
#include "arch/x86/tile_join.inc"

/* 32 elements at a time: 8 times two pairs of words and 4 high bytes. */
static void load_join(void *to, const void *x, size_t n, size_t plane) {
  const V first = _mm512_setr_epi32(0, 1, 16, 2, 3, 17, 4, 5, 18, 6, 7, 19, 8, 9, 20, 10);
  const V second = _mm512_setr_epi32(11, 21, 12, 13, 22, 14, 15, 23, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m256i offset = _mm256_set1_epi8((char)0x80);
  uint8_t *ys = to;
  const int16_t *xs = x;
  (void)plane;
  for (size_t i = 0; i < n; i += 32, ys += 96) {
    const uint32_t k_groups = n - i < 32 ? (uint32_t)(n - i) / 4 : 8, mask = (1u << k_groups * 3) - 1;
    const V words = _mm512_maskz_loadu_epi64((__mmask8)((1u << k_groups) - 1), xs + i);
    const __m256i high = _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 8));
    const V bytes = _mm512_castsi256_si512(_mm256_xor_si256(high, offset));
    _mm512_mask_storeu_epi32(ys, (__mmask16)mask, _mm512_permutex2var_epi32(words, first, bytes));
    _mm512_mask_storeu_epi32(ys + 64, (__mmask16)(mask >> 16), _mm512_permutex2var_epi32(words, second, bytes));
  }
}

/* The first n of 32 bits, or all when there are more. */
static inline uint32_t mask_of(size_t n) {
  return n < 32 ? (1u << n) - 1 : UINT32_MAX;
}

/* 4 vectors of sums, shifted, as 4 times 16 bytes. */
static inline V four(const int32_t *sums, V shift0, V shift1) {
  const V order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const V a = _mm512_srav_epi32(LOAD(sums), shift0), b = _mm512_srav_epi32(LOAD(sums + 16), shift1);
  const V c = _mm512_srav_epi32(LOAD(sums + 32), shift0), d = _mm512_srav_epi32(LOAD(sums + 48), shift1);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}

static inline void epilogue_8(const nmp_conv *c, const nmp_gemm_tile *t, size_t rows, size_t lanes, size_t n,
                              int8_t *y) {
  const V lo = _mm512_set1_epi8((char)c->lo), hi = _mm512_set1_epi8((char)c->hi), shift = LOAD(t->panel->shift);
  const uint32_t mask = mask_of(n);
  const size_t out = c->pitch;
  if (lanes > LANES) {
    const V shift1 = LOAD(t->panel->shift + LANES);
    for (size_t r = 0; r < rows; r += 2, y += 2 * out) {
      const V q = _mm512_min_epi8(_mm512_max_epi8(four(t->sums + r * lanes, shift, shift1), lo), hi);
      _mm256_mask_storeu_epi8(y, mask, _mm512_castsi512_si256(q));
      if (r + 1 < rows) {
        _mm256_mask_storeu_epi8(y + out, mask, _mm512_extracti64x4_epi64(q, 1));
      }
    }
    return;
  }
  for (size_t r = 0; r < rows; r += 4, y += 4 * out) {
    const V q = _mm512_min_epi8(_mm512_max_epi8(four(t->sums + r * lanes, shift, shift), lo), hi);
    const __mmask16 narrow = (__mmask16)mask;
    _mm_mask_storeu_epi8(y, narrow, _mm512_castsi512_si128(q));
    if (r + 1 < rows) {
      _mm_mask_storeu_epi8(y + out, narrow, _mm512_extracti32x4_epi32(q, 1));
    }
    if (r + 2 < rows) {
      _mm_mask_storeu_epi8(y + 2 * out, narrow, _mm512_extracti32x4_epi32(q, 2));
    }
    if (r + 3 < rows) {
      _mm_mask_storeu_epi8(y + 3 * out, narrow, _mm512_extracti32x4_epi32(q, 3));
    }
  }
}

/* Lanes of one vector and of two are finished alike, the second one may be empty. */
static inline void epilogue_16(const nmp_conv *c, const nmp_gemm_tile *t, size_t rows, size_t lanes, size_t n,
                               int16_t *y) {
  const V order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const V lo = _mm512_set1_epi16((short)c->lo), hi = _mm512_set1_epi16((short)c->hi);
  const V shift0 = LOAD(t->panel->shift), shift1 = LOAD(t->panel->shift + LANES);
  const size_t second = lanes > LANES ? LANES : 0;
  for (size_t r = 0; r < rows; r++) {
    const int32_t *a = t->sums + r * lanes;
    const V a0 = _mm512_srav_epi32(LOAD(a), shift0), a1 = _mm512_srav_epi32(LOAD(a + second), shift1);
    const V packed = _mm512_packs_epi32(a0, a1);
    const V q = _mm512_permutexvar_epi64(order, _mm512_min_epi16(_mm512_max_epi16(packed, lo), hi));
    _mm512_mask_storeu_epi16(y + r * c->pitch, mask_of(n), q);
  }
}

static void epilogue(const nmp_conv *c, const nmp_gemm_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  if (c->y_wide) {
    epilogue_16(c, t, rows, lanes, n, y);
  } else {
    epilogue_8(c, t, rows, lanes, n, y);
  }
}

static void epilogue_int64(const nmp_conv *c, const nmp_gemm_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
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
        _mm_mask_storeu_epi16((int16_t *)y + r * c->pitch + i, mask, _mm256_cvtepi32_epi16(q));
      } else {
        _mm_mask_storeu_epi8((int8_t *)y + r * c->pitch + i, mask, _mm256_cvtepi32_epi8(q));
      }
    }
  }
}

INLINE V clamped(V packed, V lo, V hi) {
  return _mm512_min_epi8(_mm512_max_epi8(packed, lo), hi);
}

/* Two sums of each of two pixels, or one of each of four, shifted: as 4 times 16 bytes. */
INLINE V packed(const V *s, V shift0, V shift1) {
  const V order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const V a = _mm512_srav_epi32(s[0], shift0), b = _mm512_srav_epi32(s[1], shift1);
  const V c = _mm512_srav_epi32(s[2], shift0), d = _mm512_srav_epi32(s[3], shift1);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}

INLINE void epilogue_block_8(const nmp_gemm_block *b, const V *acc, const int count, const int per, const int vectors) {
  const V lo = _mm512_set1_epi8((char)b->lo), hi = _mm512_set1_epi8((char)b->hi);
  const V shift0 = LOAD(b->panel->shift), shift1 = vectors == 2 ? LOAD(b->panel->shift + LANES) : shift0;
  const __mmask32 mask = mask_of(b->channels);
  const int pixels = 4 / vectors, last = count * vectors - 1;
  const size_t step = b->y_step;
  uint8_t *y = b->y[0], *const second = b->y[1];
  UNROLL for (int r = 0; r < count; r += pixels) {
    V four[4];
    UNROLL for (int i = 0; i < 4; i++) {
      four[i] = acc[r * vectors + i < last ? r * vectors + i : last];
    }
    const V q = clamped(packed(four, shift0, shift1), lo, hi);
    UNROLL for (int i = 0; i < pixels; i++) {
      if (r + i >= count) {
        break;
      }
      if (vectors == 2) {
        _mm256_mask_storeu_epi8(y, mask, i ? _mm512_extracti64x4_epi64(q, 1) : _mm512_castsi512_si256(q));
      } else {
        _mm_mask_storeu_epi8(y, (__mmask16)mask,
                             i == 0   ? _mm512_castsi512_si128(q)
                             : i == 1 ? _mm512_extracti32x4_epi32(q, 1)
                             : i == 2 ? _mm512_extracti32x4_epi32(q, 2)
                                      : _mm512_extracti32x4_epi32(q, 3));
      }
      y = r + i + 1 == per ? second : y + step;
    }
  }
}

INLINE void epilogue_block_16(const nmp_gemm_block *b, const V *acc, const int count, const int per,
                              const int vectors) {
  const V order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const V lo = _mm512_set1_epi16((short)b->lo), hi = _mm512_set1_epi16((short)b->hi);
  const V shift0 = LOAD(b->panel->shift), shift1 = LOAD(b->panel->shift + LANES);
  const __mmask32 mask = mask_of(b->channels);
  const size_t step = b->y_step;
  uint8_t *y = b->y[0], *const second = b->y[1];
  UNROLL for (int r = 0; r < count; r++) {
    const V a0 = _mm512_srav_epi32(acc[r * vectors], shift0);
    const V a1 = vectors == 2 ? _mm512_srav_epi32(acc[r * vectors + 1], shift1) : a0;
    const V q = _mm512_permutexvar_epi64(order, _mm512_min_epi16(_mm512_max_epi16(_mm512_packs_epi32(a0, a1), lo), hi));
    _mm512_mask_storeu_epi16(y, mask, q);
    y = r + 1 == per ? second : y + step;
  }
}

INLINE void epilogue_block(const nmp_gemm_block *b, const V *acc, const int count, const int per, const int vectors) {
  if (b->y_wide) {
    epilogue_block_16(b, acc, count, per, vectors);
  } else {
    epilogue_block_8(b, acc, count, per, vectors);
  }
}

#include "arch/x86/tile_block.inc"

TILES(TILES_2, bytes)
BLOCKS(8, 7, 1)
TILES(TILES_14, words)
TILES(TILES_7, planes)
TILES(TILES_2, wide_words)
TILES(TILES_2, wide_planes)
TILES(TILES_7, joined)
TILES(TILES_7, wide_joined)
#define JOIN_RUNS 2
#define PLANES_RUNS 2
#include "arch/x86/tile_join_block.inc"
#include "arch/x86/tile_planes_block.inc"

/* The first n bytes of q. A store of all is one that loads take from before it is in the cache. */
INLINE void store_bytes(uint8_t *y, V q, size_t n) {
  if (n >= sizeof(q)) {
    STORE(y, q);
  } else {
    _mm512_mask_storeu_epi8(y, ((__mmask64)1 << n) - 1, q);
  }
}

INLINE void epilogue_gemv(const nmp_gemv *s, V *acc, const int vectors) {
  V shifted[4];
  UNROLL for (int i = 0; i < 4; i++) {
    const __m128i by = _mm_loadu_si128((const __m128i *)(const void *)(s->shift + (i < vectors ? i : 0) * LANES));
    shifted[i] = i < vectors ? _mm512_srav_epi32(acc[i], _mm512_cvtepi8_epi32(by)) : shifted[0];
  }
  if (s->y_wide) {
    const V order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const V lo = _mm512_set1_epi16((short)s->lo), hi = _mm512_set1_epi16((short)s->hi);
    UNROLL for (int i = 0; i < vectors; i += 2) {
      const V q = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(shifted[i], shifted[i + 1]));
      store_bytes(s->y + i * 2 * LANES, _mm512_min_epi16(_mm512_max_epi16(q, lo), hi),
                  2 * (s->channels - (size_t)i * LANES));
    }
    return;
  }
  const V order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const V lo = _mm512_set1_epi8((char)s->lo), hi = _mm512_set1_epi8((char)s->hi);
  const V q =
      _mm512_packs_epi16(_mm512_packs_epi32(shifted[0], shifted[1]), _mm512_packs_epi32(shifted[2], shifted[3]));
  store_bytes(s->y, clamped(_mm512_permutexvar_epi32(order, q), lo, hi), s->channels);
}

#include "arch/x86/tile_single.inc"
SINGLE(bytes)
PLANES_BLOCKS(4, 3)
JOIN_BLOCKS(7, 3)
JOIN_PRODUCT(7, &join_blocks)
PRODUCTS(14, 7, 2, 1, 0x80, load_bytes, bytes_tiles, &blocks, NULL, &planes_blocks, single_bytes)

NMP_TARGET_END

const nmp_conv_kernel *nmp_conv_avx512vnni(const nmp_conv *c) {
  return nmp_split_words_claim(c) ? &join : choose(c);
}
#endif
