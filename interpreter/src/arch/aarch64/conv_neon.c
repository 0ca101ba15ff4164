#include "arch/aarch64/level.h"
#include "conv/gemm/bands.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "arch/aarch64/tile.inc"

/* Without dot products a sum is a vector for each pixel and channel, of products that lie one behind the other in both;
 * its lanes add up at the end. A grain is 8 bytes. The products of two grains fit together into the type of their
 * factors' square, unless all four factors are the least of theirs: panel->lowest.
 */
#define GRAIN 8
#define ROWS 2
#define PANEL 8

enum { BYTES, BYTES_LOWEST, WORDS, LONG, LONG_LOWEST };

typedef int32x4_t sum; /* or 2 of int64 */

/* Keeps a sum in its register: compilers move it about where its type changes. */
#define KEEP(s) __asm__("" : "+w"(s))

INLINE sum add_wide(sum s, int32x4_t products) {
  return vreinterpretq_s32_s64(vpadalq_s32(vreinterpretq_s64_s32(s), products));
}

INLINE int16x4_t words(int8x8_t v) {
  return vreinterpret_s16_s8(v);
}

/* s + products of grains a and b of x and w */
INLINE sum add_two(sum s, int8x8_t xa, int8x8_t wa, int8x8_t xb, int8x8_t wb, const int mode) {
  if (mode == BYTES) {
    s = vpadalq_s16(s, vmlal_s8(vmull_s8(xa, wa), xb, wb));
  } else if (mode == BYTES_LOWEST) {
    s = vpadalq_s16(vpadalq_s16(s, vmull_s8(xa, wa)), vmull_s8(xb, wb));
  } else if (mode == WORDS) {
    s = vmlal_s16(vmlal_s16(s, words(xa), words(wa)), words(xb), words(wb));
  } else if (mode == LONG) {
    s = add_wide(s, vmlal_s16(vmull_s16(words(xa), words(wa)), words(xb), words(wb)));
  } else {
    s = add_wide(add_wide(s, vmull_s16(words(xa), words(wa))), vmull_s16(words(xb), words(wb)));
  }
  KEEP(s);
  return s;
}

INLINE sum add_one(sum s, int8x8_t x, int8x8_t w, const int mode) {
  if (mode == BYTES || mode == BYTES_LOWEST) {
    s = vpadalq_s16(s, vmull_s8(x, w));
  } else if (mode == WORDS) {
    s = vmlal_s16(s, words(x), words(w));
  } else {
    s = add_wide(s, vmull_s16(words(x), words(w)));
  }
  KEEP(s);
  return s;
}

/* acc is [pixel][channel]. */
INLINE const uint8_t *add_grains(sum *acc, const uint8_t *const *x, size_t offset, size_t n, const uint8_t *w,
                                 const int mode, const int rows, const int channels) {
  const size_t step = (size_t)channels * GRAIN;
  size_t i = 0;
  for (; i + 2 <= n; i += 2, w += 2 * step, offset += 2 * GRAIN) {
    int8x8_t xa[ROWS], xb[ROWS];
    UNROLL for (int r = 0; r < rows; r++) {
      xa[r] = LOAD_GRAIN(x[r] + offset);
      xb[r] = LOAD_GRAIN(x[r] + offset + GRAIN);
    }
    UNROLL for (int c = 0; c < channels; c++) {
      const int8x8_t wa = LOAD_GRAIN(w + c * GRAIN), wb = LOAD_GRAIN(w + step + c * GRAIN);
      UNROLL for (int r = 0; r < rows; r++) {
        acc[r * channels + c] = add_two(acc[r * channels + c], xa[r], wa, xb[r], wb, mode);
      }
    }
  }
  for (; i < n; i++, w += step, offset += GRAIN) {
    UNROLL for (int c = 0; c < channels; c++) {
      const int8x8_t wa = LOAD_GRAIN(w + c * GRAIN);
      UNROLL for (int r = 0; r < rows; r++) {
        acc[r * channels + c] = add_one(acc[r * channels + c], LOAD_GRAIN(x[r] + offset), wa, mode);
      }
    }
  }
  return w;
}

INLINE void add_lanes(nmp_tile *t, const sum *acc, const int mode, const int rows, const int channels) {
  UNROLL for (int i = 0; i < rows * channels; i += 4) {
    const sum *s = acc + i;
    if (mode == LONG || mode == LONG_LOWEST) {
      vst1q_s64(t->wide + i, vpaddq_s64(vreinterpretq_s64_s32(s[0]), vreinterpretq_s64_s32(s[1])));
      vst1q_s64(t->wide + i + 2, vpaddq_s64(vreinterpretq_s64_s32(s[2]), vreinterpretq_s64_s32(s[3])));
    } else {
      const int32x4_t low = vpaddq_s32(s[0], s[1]), high = vpaddq_s32(s[2], s[3]);
      vst1q_s32(t->sums + i, vaddq_s32(vpaddq_s32(low, high), vld1q_s32(t->panel->start + i % channels)));
    }
  }
}

INLINE void tile(nmp_tile *t, const int mode, const int rows, const int vectors) {
  const int channels = vectors * PANEL / 2;
  const uint8_t *w = (const uint8_t *)(t->panel + 1), *x[ROWS];
  sum acc[ROWS * PANEL];
  UNROLL for (int i = 0; i < rows * channels; i++) {
    acc[i] = vdupq_n_s32(0);
  }
  UNROLL for (int r = 0; r < rows; r++) {
    x[r] = t->x[r];
  }
  for (size_t s = 0; s < t->segment_count; s++) {
    w = add_grains(acc, x, t->segments[s], t->grains, w, mode, rows, channels);
  }
  add_lanes(t, acc, mode, rows, channels);
}

INLINE void bytes(nmp_tile *t, const int rows, const int vectors) {
  if (t->panel->lowest) {
    tile(t, BYTES_LOWEST, rows, vectors);
  } else {
    tile(t, BYTES, rows, vectors);
  }
}

INLINE void narrow(nmp_tile *t, const int rows, const int vectors) {
  tile(t, WORDS, rows, vectors);
}

INLINE void wide(nmp_tile *t, const int rows, const int vectors) {
  if (t->panel->lowest) {
    tile(t, LONG_LOWEST, rows, vectors);
  } else {
    tile(t, LONG, rows, vectors);
  }
}

TILES(TILES_2, bytes)
TILES_2(TILE, narrow, 1)
TILES_2(TILE, narrow, 2)
nmp_tile_fn *const nmp_neon_words[2][NMP_ROWS_MAX] = {{narrow_1_1, narrow_2_1}, {narrow_1_2, narrow_2_2}};
TILES(TILES_2, wide)

#define LANES (PANEL / 2)
#define OF_WORDS(load_)                                                       \
  {.element = 2,                                                              \
   .planes = 1,                                                               \
   .lanes = LANES,                                                            \
   .grain = GRAIN,                                                            \
   .load = (load_),                                                           \
   .ways = {{ROWS, wide_tiles, finish_wide}, {ROWS, nmp_neon_words, finish}}, \
   .extremes = 1}
static const nmp_product int8_product = {.element = 1,
                                         .planes = 1,
                                         .lanes = LANES,
                                         .grain = GRAIN,
                                         .load = load_bytes,
                                         .ways = {{ROWS, bytes_tiles, finish_any}, {ROWS, bytes_tiles, finish}},
                                         .extremes = 1};
static const nmp_product int8_int16_product = OF_WORDS(load_wide_bytes);
static const nmp_product int16_product = OF_WORDS(load_words);
NMP_BANDS_KERNEL(int8)
NMP_BANDS_KERNEL(int8_int16)
NMP_BANDS_KERNEL(int16)

const nmp_conv_kernel *nmp_conv_neon(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16, &int16}};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
