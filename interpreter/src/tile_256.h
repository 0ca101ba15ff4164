/* tile_x86.h in vectors of 256 bits. The file that includes this defines DOT_BYTES and DOT_WORDS before, and
 * JOINED where those are instructions.
 */
#include <immintrin.h>

#define V __m256i
#define LANES 8
#define ZERO() _mm256_setzero_si256()
#define LOAD(p) _mm256_loadu_si256((const V *)(const void *)(p))
#define STORE(p, v) _mm256_storeu_si256((V *)(void *)(p), v)
#define ADD(a, b) _mm256_add_epi32(a, b)
#define SRA8(a) _mm256_srai_epi32(a, 8)
#define XOR(a, b) _mm256_xor_si256(a, b)
#define BROADCAST(i) _mm256_set1_epi32(i)

/* 4 int32 as int64 */
static inline V widened(const int32_t *p) {
  return _mm256_cvtepi32_epi64(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void add_sums(int64_t *to, const int32_t *from, int shift) {
  for (int i = 0; i < LANES; i += 4) {
    STORE(to + i, _mm256_add_epi64(LOAD(to + i), _mm256_slli_epi64(widened(from + i), shift)));
  }
}

#include "tile_x86.h"

/* The first n bytes of q. */
static inline void store_bytes(void *y, __m128i q, size_t n) {
  if (n >= sizeof(q)) {
    _mm_storeu_si128((__m128i *)y, q);
  } else if (n == 8) {
    _mm_storel_epi64((__m128i *)y, q);
  } else {
    uint8_t buffer[sizeof(q)];
    _mm_storeu_si128((__m128i *)(void *)buffer, q);
    memcpy(y, buffer, n);
  }
}

static inline void store_vector(uint8_t *y, V q, size_t n) {
  if (n >= sizeof(q)) {
    STORE(y, q);
    return;
  }
  store_bytes(y, _mm256_castsi256_si128(q), n);
  if (n > 16) {
    store_bytes(y + 16, _mm256_extracti128_si256(q, 1), n - 16);
  }
}

/* Lanes of one vector and of two are finished alike, the second one may be empty. */
static inline void finish_8(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, int8_t *y) {
  const V order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const V lo = _mm256_set1_epi8((char)c->lo), hi = _mm256_set1_epi8((char)c->hi);
  const V shift0 = LOAD(t->panel->shift), shift1 = LOAD(t->panel->shift + LANES);
  const size_t second = lanes > LANES ? LANES : 0;
  for (size_t r = 0; r < rows; r += 2) {
    const int32_t *a = t->sums + r * lanes, *b = r + 1 < rows ? a + lanes : a;
    const V a0 = _mm256_srav_epi32(LOAD(a), shift0), a1 = _mm256_srav_epi32(LOAD(a + second), shift1);
    const V b0 = _mm256_srav_epi32(LOAD(b), shift0), b1 = _mm256_srav_epi32(LOAD(b + second), shift1);
    const V packed = _mm256_packs_epi16(_mm256_packs_epi32(a0, a1), _mm256_packs_epi32(b0, b1));
    const V q = _mm256_permutevar8x32_epi32(_mm256_min_epi8(_mm256_max_epi8(packed, lo), hi), order);
    store_bytes(y + r * c->pitch, _mm256_castsi256_si128(q), n);
    if (r + 1 < rows) {
      store_bytes(y + (r + 1) * c->pitch, _mm256_extracti128_si256(q, 1), n);
    }
  }
}

static inline void finish_16(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, int16_t *y) {
  const V lo = _mm256_set1_epi16((short)c->lo), hi = _mm256_set1_epi16((short)c->hi);
  const V shift0 = LOAD(t->panel->shift), shift1 = LOAD(t->panel->shift + LANES);
  const size_t second = lanes > LANES ? LANES : 0;
  for (size_t r = 0; r < rows; r++) {
    const int32_t *a = t->sums + r * lanes;
    const V a0 = _mm256_srav_epi32(LOAD(a), shift0), a1 = _mm256_srav_epi32(LOAD(a + second), shift1);
    const V packed = _mm256_min_epi16(_mm256_max_epi16(_mm256_packs_epi32(a0, a1), lo), hi);
    const V q = _mm256_permute4x64_epi64(packed, 0xD8);
    store_bytes(y + r * c->pitch, _mm256_castsi256_si128(q), n * 2);
    if (n > 8) {
      store_bytes(y + r * c->pitch + 8, _mm256_extracti128_si256(q, 1), (n - 8) * 2);
    }
  }
}

static void finish(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  if (c->y_wide) {
    finish_16(c, t, rows, lanes, n, y);
  } else {
    finish_8(c, t, rows, lanes, n, y);
  }
}

/* AVX2 has no arithmetic shift of 64 bits: negative numbers are shifted as their complements, which are not. */
static inline V shift_right(V a, V by) {
  const V negative = _mm256_cmpgt_epi64(ZERO(), a);
  return _mm256_xor_si256(_mm256_srlv_epi64(_mm256_xor_si256(a, negative), by), negative);
}

static inline V larger(V a, V b) {
  return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b));
}

static inline V smaller(V a, V b) {
  return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}

static void finish_wide(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  const V zero = ZERO(), one = _mm256_set1_epi64x(1), even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  const V lo = _mm256_set1_epi64x(c->lo), hi = _mm256_set1_epi64x(c->hi);
  for (size_t i = 0; i < n; i += 4) {
    const V shift = widened(t->panel->shift + i), bias = widened(t->panel->bias + i);
    const V half = _mm256_sllv_epi64(one, _mm256_sub_epi64(shift, one)); /* zero for shifts of none or less */
    const V right = larger(shift, zero), left = larger(_mm256_sub_epi64(zero, shift), zero);
    const size_t count = n - i < 4 ? n - i : 4;
    for (size_t r = 0; r < rows; r++) {
      const V sum = shift_right(_mm256_add_epi64(LOAD(t->wide + r * lanes + i), half), right);
      const V whole = _mm256_add_epi64(_mm256_sllv_epi64(sum, left), bias);
      const V q = _mm256_permutevar8x32_epi32(smaller(larger(whole, lo), hi), even);
      const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_castsi256_si128(q));
      if (c->y_wide) {
        store_bytes((int16_t *)y + r * c->pitch + i, narrow, count * 2);
      } else {
        store_bytes((int8_t *)y + r * c->pitch + i, _mm_packs_epi16(narrow, narrow), count);
      }
    }
  }
}

/* Sums of pixels, in [pixel][vector], shifted: bytes of 2 or 4 pixels (by vectors) one after the other, words of 1 or
 * 2; the last pixels may be missing.
 */
INLINE V packed_8(const V *s, const int left, const V *shift) {
  const V order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  V q[4];
  UNROLL for (int i = 0; i < 4; i++) {
    q[i] = i < left ? _mm256_srav_epi32(s[i], shift[i % 2]) : q[0];
  }
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])),
                                     order);
}

INLINE V packed_16(const V *s, const int left, const V *shift) {
  const V a = _mm256_srav_epi32(s[0], shift[0]), b = left > 1 ? _mm256_srav_epi32(s[1], shift[1]) : a;
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
}

/* What a pixel has of the channels: half a vector or a quarter of bytes, a vector or a half of words. */
INLINE void store_pixel(uint8_t *y, V q, const int i, const int bytes) {
  if (bytes == 32) {
    STORE(y, q);
    return;
  }
  const __m128i half = i * bytes >= 16 ? _mm256_extracti128_si256(q, 1) : _mm256_castsi256_si128(q);
  if (bytes == 16) {
    _mm_storeu_si128((__m128i *)(void *)y, half);
  } else if (i % 2 == 0) {
    _mm_storel_epi64((__m128i *)(void *)y, half);
  } else {
    _mm_storeh_pi((__m64 *)(void *)y, _mm_castsi128_ps(half));
  }
}

INLINE void finish_runs(const nmp_block *b, const V *acc, uint8_t *y, uint8_t *const second, const size_t step,
                        const int wide, const int count, const int per, const int vectors) {
  const V lo = wide ? _mm256_set1_epi16((short)b->lo) : _mm256_set1_epi8((char)b->lo);
  const V hi = wide ? _mm256_set1_epi16((short)b->hi) : _mm256_set1_epi8((char)b->hi);
  const V shift[2] = {LOAD(b->panel->shift), LOAD(b->panel->shift + (vectors - 1) * LANES)};
  const int pixels = (wide ? 2 : 4) / vectors, bytes = (int)sizeof(V) / pixels;
  UNROLL for (int r = 0; r < count; r += pixels) {
    const V *sums = acc + r * vectors;
    const int left = (count - r) * vectors;
    const V q = wide ? _mm256_min_epi16(_mm256_max_epi16(packed_16(sums, left, shift), lo), hi)
                     : _mm256_min_epi8(_mm256_max_epi8(packed_8(sums, left, shift), lo), hi);
    UNROLL for (int i = 0; i < pixels; i++) {
      if (r + i >= count) {
        break;
      }
      store_pixel(y, q, i, bytes);
      y = r + i + 1 == per ? second : y + step;
    }
  }
}

/* Pixels of two runs, sizeof(V) bytes from each other, to y where those have no room for all lanes. */
static void store_parts(const nmp_block *b, const uint8_t *from, int count, int per) {
  for (int r = 0; r < count; r++, from += sizeof(V)) {
    uint8_t *y = b->y[r / per] + (size_t)(r % per) * b->y_step;
    const uint8_t *at = from;
    size_t n = b->channels << b->y_wide;
    for (; n >= 4; n -= 4, at += 4, y += 4) {
      memcpy(y, at, 4);
    }
    for (; n > 0; n--) {
      *y++ = *at++;
    }
  }
}

INLINE void finish_block(const nmp_block *b, const V *acc, const int count, const int per, const int vectors) {
  const int parts = b->channels < (size_t)(vectors * LANES);
  uint8_t some[2 * NMP_RUN_MAX * sizeof(V)];
  uint8_t *const y = parts ? some : b->y[0], *const second = parts ? some + per * (int)sizeof(V) : b->y[1];
  const size_t step = parts ? sizeof(V) : b->y_step;
  if (b->y_wide) {
    finish_runs(b, acc, y, second, step, 1, count, per, vectors);
  } else {
    finish_runs(b, acc, y, second, step, 0, count, per, vectors);
  }
  if (parts) {
    store_parts(b, some, count, per);
  }
}

#include "tile_block.h"

TILES(TILES_6, words)
TILES(TILES_3, planes)
TILES(TILES_2, wide_words)
TILES(TILES_2, wide_planes)

#ifdef JOINED
#define SUB(a, b) _mm256_sub_epi32(a, b)
#define SLL16(a) _mm256_slli_epi32(a, 16)
#define SRA16(a) _mm256_srai_epi32(a, 16)
#define SLLV(a, by) _mm256_sllv_epi32(a, by)
#define SRAV(a, by) _mm256_srav_epi32(a, by)
#include "tile_join.h"

/* 8 elements at a time, and 4 at last. */
static void load_join(void *to, const void *x, size_t n, size_t plane) {
  const __m128i first = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 1, 3, 5, 7, 8, 9, 10, 11);
  const __m128i second = _mm_setr_epi8(12, 13, 14, 15, 9, 11, 13, 15, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m128i first_bytes = _mm_setr_epi32(0, 0, (int)0x80808080, 0),
                second_bytes = _mm_setr_epi32(0, (int)0x80808080, 0, 0);
  uint8_t *ys = to;
  const int16_t *xs = x;
  (void)plane;
  for (size_t i = 0; i < n; i += 8, ys += 2 * NMP_JOIN_GRAIN) {
    const __m128i *from = (const __m128i *)(const void *)(xs + i);
    const __m128i words = n - i < 8 ? _mm_loadl_epi64(from) : _mm_loadu_si128(from);
    const __m128i q = _mm_xor_si128(_mm_shuffle_epi8(words, first), first_bytes);
    store_bytes(ys, q, n - i < 8 ? NMP_JOIN_GRAIN : sizeof(q));
    if (n - i >= 8) {
      store_bytes(ys + sizeof(q), _mm_xor_si128(_mm_shuffle_epi8(words, second), second_bytes), 8);
    }
  }
}

TILES(TILES_3, joined)
TILES(TILES_3, wide_joined)
#endif

INLINE void finish_single(const nmp_single *s, V *acc, const int vectors) {
  V shifted[4];
  UNROLL for (int i = 0; i < 4; i++) {
    const __m128i by = _mm_loadl_epi64((const __m128i *)(const void *)(s->shift + (i < vectors ? i : 0) * LANES));
    shifted[i] = i < vectors ? _mm256_srav_epi32(acc[i], _mm256_cvtepi8_epi32(by)) : shifted[0];
  }
  const V a = _mm256_packs_epi32(shifted[0], shifted[1]), b = _mm256_packs_epi32(shifted[2], shifted[3]);
  if (s->y_wide) {
    const V lo = _mm256_set1_epi16((short)s->lo), hi = _mm256_set1_epi16((short)s->hi);
    UNROLL for (int i = 0; i < vectors; i += 2) {
      const V q = _mm256_permute4x64_epi64(_mm256_min_epi16(_mm256_max_epi16(i ? b : a, lo), hi), 0xD8);
      store_vector(s->y + i * 2 * LANES, q, 2 * (s->channels - (size_t)i * LANES));
    }
    return;
  }
  const V lo = _mm256_set1_epi8((char)s->lo), hi = _mm256_set1_epi8((char)s->hi);
  const V q = _mm256_min_epi8(_mm256_max_epi8(_mm256_packs_epi16(a, b), lo), hi);
  store_vector(s->y, _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)), s->channels);
}

#include "tile_single.h"
