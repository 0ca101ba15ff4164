#include "arch/aarch64/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "arch/aarch64/gemm_tiles.inc"

/* Without dot products a sum is a vector for each pixel and channel, of products that lie one behind the other in both;
 * its lanes add up at the end. A k-group is 8 bytes. The products of two k-groups fit together into the type of their
 * factors' square, unless all four factors are the least of theirs: panel->lowest.
 */
#define K_GROUP 8
#define PIXELS 2
#define RUN 4
#define LANES 4

enum { BYTES, BYTES_LOWEST, WORDS, LONG, LONG_LOWEST };

typedef int32x4_t sum; /* or 2 of int64 */

static NMP_INLINE int16x4_t words(int8x8_t v) {
  return vreinterpret_s16_s8(v);
}

static NMP_INLINE int is_long(const int mode) {
  return mode == LONG || mode == LONG_LOWEST;
}

/* The steps of adding products, each for two channels of every pixel: p and s are [pixel][2 channels]. So chains of
 * instructions that wait for each other go side by side, as CPUs want it that take them in order.
 */
static NMP_INLINE void multiply(sum *p, const int8x8_t *x, const int8x8_t w[2], const int mode, const int pixels) {
  NMP_UNROLL for (int i = 0; i < 2 * pixels; i++) {
    p[i] = is_long(mode) ? vmull_s16(words(x[i / 2]), words(w[i % 2]))
                         : vreinterpretq_s32_s16(vmull_s8(x[i / 2], w[i % 2]));
  }
}

static NMP_INLINE void multiply_add(sum *p, const int8x8_t *x, const int8x8_t w[2], const int mode, const int pixels) {
  NMP_UNROLL for (int i = 0; i < 2 * pixels; i++) {
    p[i] = mode == BYTES ? vreinterpretq_s32_s16(vmlal_s8(vreinterpretq_s16_s32(p[i]), x[i / 2], w[i % 2]))
                         : vmlal_s16(p[i], words(x[i / 2]), words(w[i % 2]));
  }
}

/* Neighbouring products go to the same lane. */
static NMP_INLINE void add_products(sum *s, const sum *p, const int mode, const int pixels) {
  NMP_UNROLL for (int i = 0; i < 2 * pixels; i++) {
    s[i] = is_long(mode) ? vreinterpretq_s32_s64(vpadalq_s32(vreinterpretq_s64_s32(s[i]), p[i]))
                         : vpadalq_s16(s[i], vreinterpretq_s16_s32(p[i]));
  }
}

static NMP_INLINE void keep(sum *s, const int pixels) {
  NMP_UNROLL for (int i = 0; i < 2 * pixels; i++) {
    KEEP(s[i]);
  }
  (void)s;
}

/* Adds two k-groups, whose weights lie `step` bytes apart. Loads stand in pairs, which are one instruction. */
static NMP_INLINE void add_two(sum *s, const int8x8_t *xa, const int8x8_t *xb, const uint8_t *w, size_t step,
                               const int mode, const int pixels) {
  const int8x8_t wa[2] = {load_8(w), load_8(w + K_GROUP)}, wb[2] = {load_8(w + step), load_8(w + step + K_GROUP)};
  sum p[2 * RUN];
  if (mode == WORDS) {
    multiply_add(s, xa, wa, mode, pixels);
    multiply_add(s, xb, wb, mode, pixels);
  } else if (mode == BYTES || mode == LONG) {
    multiply(p, xa, wa, mode, pixels);
    multiply_add(p, xb, wb, mode, pixels);
    add_products(s, p, mode, pixels);
  } else {
    multiply(p, xa, wa, mode, pixels);
    add_products(s, p, mode, pixels);
    multiply(p, xb, wb, mode, pixels);
    add_products(s, p, mode, pixels);
  }
  keep(s, pixels);
}

static NMP_INLINE void add_one(sum *s, const int8x8_t *x, const uint8_t *at, const int mode, const int pixels) {
  const int8x8_t w[2] = {load_8(at), load_8(at + K_GROUP)};
  sum p[2 * RUN];
  if (mode == WORDS) {
    multiply_add(s, x, w, mode, pixels);
  } else {
    multiply(p, x, w, mode, pixels);
    add_products(s, p, mode, pixels);
  }
  keep(s, pixels);
}

/* acc is [pair of channels][pixel][channel of the pair]. */
static NMP_INLINE const uint8_t *add_k_groups(sum *acc, const uint8_t *const *x, size_t offset, size_t n,
                                              const uint8_t *w, const int mode, const int pixels, const int channels) {
  const size_t step = (size_t)channels * K_GROUP;
  int8x8_t xa[RUN], xb[RUN];
  size_t i = 0;
  for (; i + 2 <= n; i += 2, w += 2 * step, offset += 2 * K_GROUP) {
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      xa[r] = load_8(x[r] + offset);
      xb[r] = load_8(x[r] + offset + K_GROUP);
    }
    NMP_UNROLL for (int c = 0; c < channels; c += 2) {
      add_two(acc + c * pixels, xa, xb, w + c * K_GROUP, step, mode, pixels);
    }
  }
  if (i < n) {
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      xa[r] = load_8(x[r] + offset);
    }
    NMP_UNROLL for (int c = 0; c < channels; c += 2) {
      add_one(acc + c * pixels, xa, w + c * K_GROUP, mode, pixels);
    }
    w += step;
  }
  return w;
}

/* From zero on, of the pixels at x; `segments`: their distances from x. */
static NMP_INLINE void add_segments(sum *acc, const uint8_t *const *x, const nmp_gemm_panel *panel,
                                    const uint32_t *segments, size_t segment_count, size_t k_groups, const int mode,
                                    const int pixels, const int channels) {
  const uint8_t *w = (const uint8_t *)(panel + 1);
  NMP_UNROLL for (int i = 0; i < pixels * channels; i++) {
    acc[i] = vdupq_n_s32(0);
  }
  for (size_t s = 0; s < segment_count; s++) {
    w = add_k_groups(acc, x, segments[s], k_groups, w, mode, pixels, channels);
  }
}

/* The sums of 4 channels, of which two are at `low` and two at `high`, and what they start with. */
static NMP_INLINE int32x4_t add_lanes(const sum *low, const sum *high, const int32_t *start) {
  return vaddq_s32(vpaddq_s32(vpaddq_s32(low[0], low[1]), vpaddq_s32(high[0], high[1])), vld1q_s32(start));
}

static NMP_INLINE int64x2_t add_long_lanes(const sum *s) {
  return vpaddq_s64(vreinterpretq_s64_s32(s[0]), vreinterpretq_s64_s32(s[1]));
}

static NMP_INLINE void tile(nmp_gemm_tile *t, const int mode, const int pixels, const int vectors) {
  const int channels = vectors * LANES;
  const uint8_t *x[PIXELS];
  sum acc[PIXELS * 2 * LANES];
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    x[r] = t->x[r];
  }
  add_segments(acc, x, t->panel, t->segments, t->segment_count, t->k_groups, mode, pixels, channels);
  NMP_UNROLL for (int i = 0; i < pixels * channels; i += 4) {
    const int r = i / channels, c = i % channels;
    const sum *low = acc + c * pixels + 2 * r, *high = low + 2 * pixels;
    if (is_long(mode)) {
      vst1q_s64(t->wide + i, add_long_lanes(low));
      vst1q_s64(t->wide + i + 2, add_long_lanes(high));
    } else {
      vst1q_s32(t->sums + i, add_lanes(low, high, t->panel->start + c));
    }
  }
}

static NMP_INLINE void bytes(nmp_gemm_tile *t, const int pixels, const int vectors) {
  if (t->panel->lowest) {
    tile(t, BYTES_LOWEST, pixels, vectors);
  } else {
    tile(t, BYTES, pixels, vectors);
  }
}

static NMP_INLINE void narrow(nmp_gemm_tile *t, const int pixels, const int vectors) {
  tile(t, WORDS, pixels, vectors);
}

static NMP_INLINE void wide(nmp_gemm_tile *t, const int pixels, const int vectors) {
  if (t->panel->lowest) {
    tile(t, LONG_LOWEST, pixels, vectors);
  } else {
    tile(t, LONG, pixels, vectors);
  }
}

static NMP_INLINE void block_sums(int32x4_t *sums, const uint8_t *const *x, const nmp_gemm_block *b, const int mode,
                                  const int pixels, const int vectors) {
  const int channels = vectors * LANES;
  sum acc[RUN * LANES];
  add_segments(acc, x, b->panel, b->segments, b->segment_count, b->k_groups, mode, pixels, channels);
  NMP_UNROLL for (int i = 0; i < pixels * channels; i += 4) {
    const int r = i / channels, c = i % channels;
    const sum *low = acc + c * pixels + 2 * r;
    sums[i / 4] = add_lanes(low, low + 2 * pixels, b->panel->start + c);
  }
}

#include "arch/aarch64/gemm_blocks.inc"

static NMP_INLINE void bytes_block(const nmp_gemm_block *b, const int pixels, const int vectors) {
  if (b->panel->lowest) {
    gemm_block(b, BYTES_LOWEST, pixels, vectors);
  } else {
    gemm_block(b, BYTES, pixels, vectors);
  }
}

static NMP_INLINE void narrow_block(const nmp_gemm_block *b, const int pixels, const int vectors) {
  gemm_block(b, WORDS, pixels, vectors);
}

TILES(TILES_2, bytes)
BLOCKS(bytes, 4, 2)
BLOCKS(narrow, 4, 2)
TILES_2(TILE, narrow, 1)
TILES_2(TILE, narrow, 2)
nmp_gemm_tile_fn *const nmp_neon_words[2][NMP_TILE_PIXELS] = {{narrow_1_1, narrow_2_1}, {narrow_1_2, narrow_2_2}};
TILES(TILES_2, wide)

#define OF_WORDS(load_)                                                               \
  {.element = 2,                                                                      \
   .planes = 1,                                                                       \
   .lanes = LANES,                                                                    \
   .k_group = K_GROUP,                                                                \
   .load = (load_),                                                                   \
   .tiles = {{.pixels = PIXELS, .functions = wide_tiles, .epilogue = epilogue_int64}, \
             {.pixels = PIXELS, .functions = nmp_neon_words, .epilogue = epilogue}},  \
   .blocks = &narrow_blocks,                                                          \
   .extremes = 1}
static const nmp_gemm_product int8_product = {
    .element = 1,
    .planes = 1,
    .lanes = LANES,
    .k_group = K_GROUP,
    .load = load_bytes,
    .tiles = {{.pixels = PIXELS, .functions = bytes_tiles, .epilogue = epilogue_any},
              {.pixels = PIXELS, .functions = bytes_tiles, .epilogue = epilogue}},
    .blocks = &bytes_blocks,
    .extremes = 1};
static const nmp_gemm_product int8_int16_product = OF_WORDS(load_wide_bytes);
static const nmp_gemm_product int16_product = OF_WORDS(load_words);
NMP_GEMM_KERNEL(int8)
NMP_GEMM_KERNEL(int8_int16)
NMP_GEMM_KERNEL(int16)

const nmp_conv_kernel *nmp_conv_neon(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16, &int16}};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
