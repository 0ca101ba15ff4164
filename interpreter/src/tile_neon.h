/* What the tiles of AArch64 share: loading a band, finishing a tile's sums, lists of tiles. conv_bands.h has the
 * interface. <arm_neon.h> is included before.
 */
#include <string.h>

#include "scale_neon.h"

/* GCC would begin with all loads and products of a step, and have no registers for the sums. */
#ifndef __clang__
#pragma GCC optimize("no-schedule-insns")
#endif

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

/* Of conv_neon.c: proven panels of words, of 8 channels or 4, in grains of 8 bytes. */
extern nmp_tile_fn *const nmp_neon_words[2][NMP_ROWS_MAX];

#define LOAD_GRAIN(p) vld1_s8((const int8_t *)(p))

static inline void load_bytes(void *to, const void *x, size_t n, size_t plane) {
  (void)plane;
  memcpy(to, x, n);
}

static inline void load_words(void *to, const void *x, size_t n, size_t plane) {
  (void)plane;
  memcpy(to, x, n * 2);
}

static inline void load_wide_bytes(void *to, const void *x, size_t n, size_t plane) {
  int16_t *ys = to;
  const int8_t *xs = x;
  (void)plane;
  for (size_t i = 0; i < n; i++) {
    ys[i] = xs[i];
  }
}

/* The first n of 8 values within y's range. */
INLINE void store(void *y, int16x8_t q, size_t n, int y_wide) {
  if (n < 8) {
    int16_t copy[8];
    vst1q_s16(copy, q);
    if (!y_wide) {
      vst1_s8((int8_t *)copy, vmovn_s16(q));
    }
    memcpy(y, copy, n << y_wide);
  } else if (y_wide) {
    vst1q_s16(y, q);
  } else {
    vst1_s8(y, vmovn_s16(q));
  }
}

/* Sums that start with bias and half a unit. Of 8 channels the second 4 may be empty, those of the first are finished
 * twice then.
 */
static inline void finish(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  const int16x8_t lo = vdupq_n_s16((int16_t)c->lo), hi = vdupq_n_s16((int16_t)c->hi);
  for (size_t i = 0; i < n; i += 8) {
    const size_t second = i + 4 < lanes ? i + 4 : i;
    const int32x4_t left0 = vnegq_s32(vld1q_s32(t->panel->shift + i));
    const int32x4_t left1 = vnegq_s32(vld1q_s32(t->panel->shift + second));
    for (size_t r = 0; r < rows; r++) {
      const int32_t *sums = t->sums + r * lanes;
      const int32x4_t a = vshlq_s32(vld1q_s32(sums + i), left0), b = vshlq_s32(vld1q_s32(sums + second), left1);
      const int16x8_t q = vcombine_s16(vqmovn_s32(a), vqmovn_s32(b));
      store((uint8_t *)y + ((r * c->pitch + i) << c->y_wide), vminq_s16(vmaxq_s16(q, lo), hi), n - i, c->y_wide);
    }
  }
}

/* sat(rsh(sum, shift) + bias) of the tile's sums in 32 bits, or in 64 */
INLINE void finish_exactly(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, uint8_t *y,
                           const int is_wide) {
  const int32x4_t lo = vdupq_n_s32(c->lo), hi = vdupq_n_s32(c->hi);
  for (size_t i = 0; i < n; i += 4) {
    const scales how = scales_of(vld1q_s32(t->panel->shift + i), vld1q_s32(t->panel->bias + i));
    for (size_t r = 0; r < rows; r++) {
      const size_t at = r * lanes + i;
      const int32x4_t sums = vld1q_s32(t->sums + at);
      const int64x2_t low = is_wide ? vld1q_s64(t->wide + at) : vmovl_s32(vget_low_s32(sums));
      const int64x2_t high = is_wide ? vld1q_s64(t->wide + at + 2) : vmovl_high_s32(sums);
      const int16x4_t q = vmovn_s32(vminq_s32(vmaxq_s32(scale_4(low, high, &how), lo), hi));
      store(y + ((r * c->pitch + i) << c->y_wide), vcombine_s16(q, q), n - i < 4 ? n - i : 4, c->y_wide);
    }
  }
}

static inline void finish_wide(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  finish_exactly(c, t, rows, lanes, n, y, 1);
}

static inline void finish_any(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y) {
  finish_exactly(c, t, rows, lanes, n, y, 0);
}

/* Lists of tiles with 1.. pixels, as in tile_x86.h. */
#define TILES_2(X, name, v) X(name, 1, v) X(name, 2, v)
#define TILES_3(X, name, v) TILES_2(X, name, v) X(name, 3, v)
#define TILES_4(X, name, v) TILES_3(X, name, v) X(name, 4, v)
#define TILE(name, rows, vectors)                      \
  static void name##_##rows##_##vectors(nmp_tile *t) { \
    name(t, rows, vectors);                            \
  }
#define TILE_NAME(name, rows, vectors) name##_##rows##_##vectors,
#define TILES(LIST, name) \
  LIST(TILE, name, 1)     \
  LIST(TILE, name, 2)     \
  static nmp_tile_fn *const name##_tiles[2][NMP_ROWS_MAX] = {{LIST(TILE_NAME, name, 1)}, {LIST(TILE_NAME, name, 2)}};
