#include "arch/aarch64/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "arch/aarch64/gemm_tiles.inc"

/* Without dot products a sum is a vector for each pixel and channel, of products that lie one behind the other in both;
 * its lanes add up at the end. A k-group is 8 bytes. The products of some k-groups fit together into the type of their
 * factors' square: two, unless all four factors are the least of theirs (panel->lowest), and mostly four
 * (panel->apart says which not).
 */
#define K_GROUP 8
#define PIXELS 2
#define RUN 4
#define LANES 4

enum { BYTES, WORDS, LONG };

typedef int32x4_t sum; /* or 2 of int64 */

/* Products of the low or the high k-group of x and w, neighbours in one lane or apart. */
static NMP_INLINE sum multiply(const int8x16_t x, const int8x16_t w, const int high, const int mode) {
  const int16x8_t xs = vreinterpretq_s16_s8(x), ws = vreinterpretq_s16_s8(w);
  if (mode == BYTES) {
    return vreinterpretq_s32_s16(high ? vmull_high_s8(x, w) : vmull_s8(vget_low_s8(x), vget_low_s8(w)));
  }
  return high ? vmull_high_s16(xs, ws) : vmull_s16(vget_low_s16(xs), vget_low_s16(ws));
}

static NMP_INLINE sum multiply_add(const sum p, const int8x16_t x, const int8x16_t w, const int high, const int mode) {
  const int16x8_t xs = vreinterpretq_s16_s8(x), ws = vreinterpretq_s16_s8(w), ps = vreinterpretq_s16_s32(p);
  if (mode == BYTES) {
    return vreinterpretq_s32_s16(high ? vmlal_high_s8(ps, x, w) : vmlal_s8(ps, vget_low_s8(x), vget_low_s8(w)));
  }
  return high ? vmlal_high_s16(p, xs, ws) : vmlal_s16(p, vget_low_s16(xs), vget_low_s16(ws));
}

/* Neighbouring products go to the same lane. fresh: the sum is zero before. */
static NMP_INLINE sum add_products(const sum s, const sum p, const int mode, const int fresh) {
  if (mode == BYTES) {
    return fresh ? vpaddlq_s16(vreinterpretq_s16_s32(p)) : vpadalq_s16(s, vreinterpretq_s16_s32(p));
  }
  return vreinterpretq_s32_s64(fresh ? vpaddlq_s32(p) : vpadalq_s32(vreinterpretq_s64_s32(s), p));
}

/* k-groups [first, end) of x, [two k-groups][pixel], and w, [two k-groups][channel], for two channels of every pixel:
 * s is [pixel][channel]. So chains of instructions that wait for each other go side by side, as CPUs want it that take
 * them in order.
 */
static NMP_INLINE void add_together(sum *s, int8x16_t x[2][RUN], int8x16_t w[2][2], const int first, const int end,
                                    const int mode, const int pixels, const int fresh) {
  sum p[2 * RUN];
  NMP_UNROLL for (int g = first; g < end; g++) {
    NMP_UNROLL for (int i = 0; i < 2 * pixels; i++) {
      sum *to = mode == WORDS ? s + i : p + i;
      const int starts = g == first && (mode != WORDS || fresh);
      const int8x16_t xs = x[g / 2][i / 2], ws = w[g / 2][i % 2];
      *to = starts ? multiply(xs, ws, g % 2, mode) : multiply_add(*to, xs, ws, g % 2, mode);
    }
  }
  NMP_UNROLL for (int i = 0; i < 2 * pixels; i++) {
    s[i] = mode == WORDS ? s[i] : add_products(s[i], p[i], mode, fresh);
    KEEP(s[i]);
  }
}

/* Loads n k-groups, of which a last one may be alone. */
static NMP_INLINE void load_k_groups(int8x16_t *to, const uint8_t *at, size_t step, size_t last, const int n) {
  to[0] = n > 1 ? load_16(at) : vcombine_s8(load_8(at), vdup_n_s8(0));
  if (n > 2) {
    to[1] = n > 3 ? load_16(at + step) : vcombine_s8(load_8(at + last), vdup_n_s8(0));
  }
}

/* n k-groups by as many at a time as fit together. acc is [pair of channels][pixel][channel of the pair]. Weights are
 * [two k-groups][channel][k-group of the two], and [channel] of a last one.
 */
static NMP_INLINE void add_k_groups(sum *acc, const uint8_t *const *at, const uint8_t *w, const int n, const int mode,
                                    const int together, const int pixels, const int channels, const int fresh) {
  const size_t two = 2 * K_GROUP, step = (size_t)channels * two;
  int8x16_t x[2][RUN], ws[2][2];
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    int8x16_t each[2];
    load_k_groups(each, at[r], two, two, n);
    KEEP(each[0]); /* or GCC makes products that two branches have in front of both, and has no registers for them */
    x[0][r] = each[0];
    if (n > 2) {
      KEEP(each[1]);
      x[1][r] = each[1];
    }
  }
  NMP_UNROLL for (int c = 0; c < channels; c += 2) {
    NMP_UNROLL for (int i = 0; i < 2; i++) {
      int8x16_t each[2];
      const size_t channel = (size_t)(c + i);
      load_k_groups(each, w + channel * (n > 1 ? two : K_GROUP), step, step - channel * K_GROUP, n);
      ws[0][i] = each[0];
      if (n > 2) {
        ws[1][i] = each[1];
      }
    }
    NMP_UNROLL for (int g = 0; g < n; g += together) {
      const int end = g + together < n ? g + together : n;
      add_together(acc + c * pixels, x, ws, g, end, mode, pixels, fresh && g == 0);
    }
  }
}

/* n k-groups of a segment, after some that are there. */
static NMP_INLINE const uint8_t *add_segment(sum *acc, const uint8_t *const *x, size_t offset, size_t n,
                                             const uint8_t *w, int64_t *apart, const int mode, const int together,
                                             const int pixels, const int channels) {
  const int step = together > 2 ? together : 2;
  const size_t bytes = (size_t)channels * K_GROUP;
  const uint8_t *at[RUN];
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    at[r] = x[r] + offset;
  }
  while (n >= (size_t)step) {
    for (; step > 2 && n >= (size_t)step && (*apart & 1); n -= (size_t)step, w += (size_t)step * bytes, *apart >>= 1) {
      add_k_groups(acc, at, w, step, mode, 2, pixels, channels, 0);
      NMP_UNROLL for (int r = 0; r < pixels; r++) {
        at[r] += step * K_GROUP;
      }
    }
    for (; n >= (size_t)step && (step == 2 || !(*apart & 1));
         n -= (size_t)step, w += (size_t)step * bytes, *apart >>= 1) {
      add_k_groups(acc, at, w, step, mode, together, pixels, channels, 0);
      NMP_UNROLL for (int r = 0; r < pixels; r++) {
        at[r] += step * K_GROUP;
      }
    }
  }
  if (step > 2 && n == 3 && !(*apart & 1)) {
    add_k_groups(acc, at, w, 3, mode, 3, pixels, channels, 0);
    return w + 3 * bytes;
  }
  if (step > 2 && n >= 2) {
    add_k_groups(acc, at, w, 2, mode, 2, pixels, channels, 0);
    n -= 2;
    w += 2 * bytes;
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      at[r] += 2 * K_GROUP;
    }
  }
  if (n > 0) {
    add_k_groups(acc, at, w, 1, mode, 1, pixels, channels, 0);
  }
  return w + n * bytes;
}

/* From zero on, of the pixels at x; `segments`: their distances from x. The first k-groups need no zeros. */
static NMP_INLINE void add_segments(sum *acc, const uint8_t *const *x, const nmp_gemm_panel *panel,
                                    const uint32_t *segments, size_t segment_count, size_t k_groups, const int mode,
                                    const int together, const int pixels, const int channels) {
  const uint8_t *w = (const uint8_t *)(panel + 1);
  int64_t apart = panel->apart;
  size_t done = 0;
  if (together > 2 && k_groups >= 4 && !(apart & 1)) {
    add_k_groups(acc, x, w, 4, mode, 4, pixels, channels, 1);
    done = 4;
    apart >>= 1;
  } else if (together > 2 && k_groups == 3 && !(apart & 1)) {
    add_k_groups(acc, x, w, 3, mode, 3, pixels, channels, 1);
    done = 3;
  } else if (k_groups >= 2 && (together <= 2 || k_groups < 4)) {
    add_k_groups(acc, x, w, 2, mode, together < 2 ? 1 : 2, pixels, channels, 1);
    done = 2;
  } else {
    NMP_UNROLL for (int i = 0; i < pixels * channels; i++) {
      acc[i] = vdupq_n_s32(0);
    }
  }
  w += done * (size_t)channels * K_GROUP;
  for (size_t s = 0; s < segment_count; s++, done = 0) {
    w = add_segment(acc, x, segments[s] + done * K_GROUP, k_groups - done, w, &apart, mode, together, pixels, channels);
    apart >>= k_groups % 4 > 0;
  }
}

/* The sums of 4 channels, of which two are at `low` and two at `high`, and what they start with. */
static NMP_INLINE int32x4_t add_lanes(const sum *low, const sum *high, const int32_t *start) {
  return vaddq_s32(vpaddq_s32(vpaddq_s32(low[0], low[1]), vpaddq_s32(high[0], high[1])), vld1q_s32(start));
}

static NMP_INLINE int64x2_t add_long_lanes(const sum *s) {
  return vpaddq_s64(vreinterpretq_s64_s32(s[0]), vreinterpretq_s64_s32(s[1]));
}

static NMP_INLINE void tile(nmp_gemm_tile *t, const int mode, const int together, const int pixels, const int vectors) {
  const int channels = vectors * LANES;
  const uint8_t *x[PIXELS];
  sum acc[PIXELS * 2 * LANES];
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    x[r] = t->x[r];
  }
  add_segments(acc, x, t->panel, t->segments, t->segment_count, t->k_groups, mode, together, pixels, channels);
  NMP_UNROLL for (int i = 0; i < pixels * channels; i += 4) {
    const int r = i / channels, c = i % channels;
    const sum *low = acc + c * pixels + 2 * r, *high = low + 2 * pixels;
    if (mode == LONG) {
      vst1q_s64(t->wide + i, add_long_lanes(low));
      vst1q_s64(t->wide + i + 2, add_long_lanes(high));
    } else {
      vst1q_s32(t->sums + i, add_lanes(low, high, t->panel->start + c));
    }
  }
}

static NMP_INLINE void bytes(nmp_gemm_tile *t, const int pixels, const int vectors) {
  if (t->panel->lowest) {
    tile(t, BYTES, 1, pixels, vectors);
  } else {
    tile(t, BYTES, 2, pixels, vectors);
  }
}

static NMP_INLINE void narrow(nmp_gemm_tile *t, const int pixels, const int vectors) {
  tile(t, WORDS, 2, pixels, vectors);
}

static NMP_INLINE void wide(nmp_gemm_tile *t, const int pixels, const int vectors) {
  if (t->panel->lowest) {
    tile(t, LONG, 1, pixels, vectors);
  } else {
    tile(t, LONG, 2, pixels, vectors);
  }
}

/* A mode of blocks is how many k-groups of bytes fit together, or 0 for words. Of words with sums in 64 bits it is less
 * than 0, and how many fit together.
 */
static NMP_INLINE int is_scaled(const int mode) {
  return mode < 0;
}

/* sat(rsh(sum, shift) + bias), [pixel][4 channels] */
static NMP_INLINE void scale_long(int32x4_t *to, const sum *acc, const nmp_gemm_panel *panel, const int pixels,
                                  const int vectors) {
  NMP_UNROLL for (int v = 0; v < vectors; v++) {
    const scales how = scales_of(vld1q_s32(panel->shift + v * LANES), vld1q_s32(panel->bias + v * LANES));
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      const sum *low = acc + v * LANES * pixels + 2 * r, *high = low + 2 * pixels;
      to[r * vectors + v] = scale_4(add_long_lanes(low), add_long_lanes(high), &how);
    }
  }
}

static NMP_INLINE void block_sums(int32x4_t *sums, const uint8_t *const *x, const nmp_gemm_block *b, const int mode,
                                  const int pixels, const int vectors) {
  const int channels = vectors * LANES, type = mode < 0 ? LONG : mode > 0 ? BYTES : WORDS;
  const int together = mode < 0 ? -mode : mode > 0 ? mode : 2;
  sum acc[RUN * LANES];
  add_segments(acc, x, b->panel, b->segments, b->segment_count, b->k_groups, type, together, pixels, channels);
  if (is_scaled(mode)) {
    scale_long(sums, acc, b->panel, pixels, vectors);
    return;
  }
  NMP_UNROLL for (int i = 0; i < pixels * channels; i += 4) {
    const int r = i / channels, c = i % channels;
    const sum *low = acc + c * pixels + 2 * r;
    sums[i / 4] = add_lanes(low, low + 2 * pixels, b->panel->start + c);
  }
}

#include "arch/aarch64/gemm_blocks.inc"

static NMP_INLINE void bytes_block(const nmp_gemm_block *b, const int pixels, const int vectors) {
  if (b->panel->lowest) {
    gemm_block(b, 1, pixels, vectors);
  } else {
    gemm_block(b, 4, pixels, vectors);
  }
}

static NMP_INLINE void exact_block(const nmp_gemm_block *b, const int pixels, const int vectors) {
  if (b->panel->lowest) {
    gemm_block(b, -1, pixels, vectors);
  } else {
    gemm_block(b, -4, pixels, vectors);
  }
}

static NMP_INLINE void narrow_block(const nmp_gemm_block *b, const int pixels, const int vectors) {
  gemm_block(b, 0, pixels, vectors);
}

TILES(TILES_2, bytes)
BLOCKS(bytes, 4, 2)
BLOCKS(narrow, 4, 2)
BLOCKS(exact, 4, 2)
TILES(TILES_2, narrow)
TILES(TILES_2, wide)

#define OF_WORDS(load_)                                                               \
  {.element = 2,                                                                      \
   .planes = 1,                                                                       \
   .lanes = LANES,                                                                    \
   .k_group = K_GROUP,                                                                \
   .load = (load_),                                                                   \
   .tiles = {{.pixels = PIXELS, .functions = wide_tiles, .epilogue = epilogue_int64}, \
             {.pixels = PIXELS, .functions = narrow_tiles, .epilogue = epilogue}},    \
   .blocks = &narrow_blocks,                                                          \
   .exact = &exact_blocks,                                                            \
   .patches = 1,                                                                      \
   .pairs = 1,                                                                        \
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
    .patches = 1,
    .pairs = 1,
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
