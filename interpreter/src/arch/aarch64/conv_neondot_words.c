#include "arch/aarch64/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_DOTPROD)

#define DOTPROD
#include "arch/aarch64/gemm_tiles.inc"

/* int16 times int16 by dot products of bytes: x = 256 xh + xl + 128 and w = 256 wh + wl, whose parts are int8, so that
 *   S = sum(x w) = 2^16 sum(xh wh) + 2^8 sum(xh wl + xl wh) + sum(xl wl) + 128 sum(w)
 * exactly. wh would be 128 for the highest weights: panels with such have the high byte of w for it, and add 1 for each
 * wl below 0. Where S / 2^8 fits 32 bits with bias and half a unit, that is what is computed.
 */
#define K_GROUP 4
#define PIXELS 3
#define RUN 6 /* sums of a block, by vectors */
#define LANES 4
#define K_LIMIT 65535 /* the sum in the middle, and that of weights, are below 2^31 */

typedef struct sums {
  int32x4_t high, middle, low; /* of a pixel and 4 channels */
} sums;

/* Dot products of k-group g of each pixel. */
static NMP_INLINE void add_k_group(sums *acc, const int8x16_t *xh, const int8x16_t *xl, const uint8_t *w, const int g,
                                   const int highest, const int pixels, const int quads) {
  NMP_UNROLL for (int q = 0; q < quads; q++) {
    const int8x16_t wh = load_16(w + (g * quads + q) * 32), wl = load_16(w + (g * quads + q) * 32 + 16);
    const int8x16_t below = vnegq_s8(vshrq_n_s8(wl, 7));
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      sums *s = &acc[r * quads + q];
      s->high = dot_lane(s->high, wh, xh[r], g);
      s->middle = dot_lane(s->middle, wh, xl[r], g);
    }
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      sums *s = &acc[r * quads + q];
      s->low = dot_lane(s->low, wl, xl[r], g);
      s->middle = dot_lane(s->middle, wl, xh[r], g);
    }
    NMP_UNROLL for (int r = 0; r < pixels && highest; r++) {
      sums *s = &acc[r * quads + q];
      s->high = dot_lane(s->high, below, xh[r], g);
      s->middle = dot_lane(s->middle, below, xl[r], g);
    }
  }
}

/* 16 elements of each pixel, at last behind the padded rows. */
static NMP_INLINE void load_x(int8x16_t *xh, int8x16_t *xl, const uint8_t *const *at, size_t offset, size_t plane,
                              const int pixels) {
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    xh[r] = load_16(at[r] + offset);
    xl[r] = load_16(at[r] + offset + plane);
  }
}

static NMP_INLINE const uint8_t *add_k_groups(sums *acc, const uint8_t *const *at, size_t offset, size_t plane,
                                              size_t n, const uint8_t *w, const int highest, const int pixels,
                                              const int quads) {
  int8x16_t xl[PIXELS], xh[PIXELS];
  size_t i = 0;
  for (; i + 4 <= n; i += 4, w += 4 * quads * 32, offset += 4 * K_GROUP) {
    load_x(xh, xl, at, offset, plane, pixels);
    add_k_group(acc, xh, xl, w, 0, highest, pixels, quads);
    add_k_group(acc, xh, xl, w, 1, highest, pixels, quads);
    add_k_group(acc, xh, xl, w, 2, highest, pixels, quads);
    add_k_group(acc, xh, xl, w, 3, highest, pixels, quads);
  }
  if (i < n) {
    load_x(xh, xl, at, offset, plane, pixels);
    add_k_group(acc, xh, xl, w, 0, highest, pixels, quads);
    if (n - i > 1) {
      add_k_group(acc, xh, xl, w, 1, highest, pixels, quads);
    }
    if (n - i > 2) {
      add_k_group(acc, xh, xl, w, 2, highest, pixels, quads);
    }
    w += (n - i) * (size_t)quads * 32;
  }
  return w;
}

/* From those in acc on, of the pixels at x; `segments`: their distances from x. */
static NMP_INLINE void add_segments(sums *acc, const uint8_t *const *x, size_t plane, const nmp_gemm_panel *panel,
                                    const uint32_t *segments, size_t segment_count, size_t k_groups, const int highest,
                                    const int pixels, const int quads) {
  const uint8_t *w = (const uint8_t *)(panel + 1);
  for (size_t s = 0; s < segment_count; s++) {
    w = add_k_groups(acc, x, segments[s], plane, k_groups, w, highest, pixels, quads);
  }
}

/* Starts sums of floor(S / 2^8), which `joined` ends. */
static NMP_INLINE void begin(sums *acc, const nmp_gemm_panel *panel, const int pixels, const int quads) {
  NMP_UNROLL for (int i = 0; i < pixels * quads; i++) {
    acc[i].high = vdupq_n_s32(0);
    acc[i].middle = vld1q_s32(panel->start + i % quads * LANES);
    acc[i].low = vld1q_s32(panel->unit + i % quads * LANES);
  }
}

static NMP_INLINE int32x4_t joined(const sums *s) {
  return vaddq_s32(vshlq_n_s32(s->high, 8), vsraq_n_s32(s->middle, s->low, 8));
}

/* 2 of the 4 channels */
static NMP_INLINE int64x2_t joined_sums(int32x2_t high, int32x2_t middle, int32x2_t low, int32x2_t weights) {
  const int64x2_t ends = vaddw_s32(vshll_n_s32(high, 16), low);
  return vaddq_s64(ends, vaddq_s64(vshll_n_s32(middle, 8), vshll_n_s32(weights, 7)));
}

static NMP_INLINE void tile_sums(nmp_gemm_tile *t, sums *acc, const int highest, const int pixels, const int quads) {
  const uint8_t *x[PIXELS];
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    x[r] = t->x[r];
  }
  add_segments(acc, x, t->plane, t->panel, t->segments, t->segment_count, t->k_groups, highest, pixels, quads);
}

static NMP_INLINE void whole(nmp_gemm_tile *t, const int pixels, const int quads) {
  sums acc[PIXELS * 2];
  memset(acc, 0, sizeof(acc));
  if (t->panel->highest) {
    tile_sums(t, acc, 1, pixels, quads);
  } else {
    tile_sums(t, acc, 0, pixels, quads);
  }
  NMP_UNROLL for (int i = 0; i < pixels * quads; i++) {
    const sums s = acc[i];
    const int32x4_t weights = vld1q_s32(t->panel->start + i % quads * LANES);
    vst1q_s64(t->wide + i * LANES,
              joined_sums(vget_low_s32(s.high), vget_low_s32(s.middle), vget_low_s32(s.low), vget_low_s32(weights)));
    vst1q_s64(t->wide + i * LANES + 2, joined_sums(vget_high_s32(s.high), vget_high_s32(s.middle), vget_high_s32(s.low),
                                                   vget_high_s32(weights)));
  }
}

static NMP_INLINE void split(nmp_gemm_tile *t, const int pixels, const int quads) {
  sums acc[PIXELS * 2];
  begin(acc, t->panel, pixels, quads);
  if (t->panel->highest) {
    tile_sums(t, acc, 1, pixels, quads);
  } else {
    tile_sums(t, acc, 0, pixels, quads);
  }
  NMP_UNROLL for (int i = 0; i < pixels * quads; i++) {
    vst1q_s32(t->sums + i * LANES, joined(&acc[i]));
  }
}

static NMP_INLINE void block_sums(int32x4_t *to, const uint8_t *const *x, const nmp_gemm_block *b, const int highest,
                                  const int pixels, const int quads) {
  sums acc[PIXELS * 2];
  begin(acc, b->panel, pixels, quads);
  add_segments(acc, x, b->plane, b->panel, b->segments, b->segment_count, b->k_groups, highest, pixels, quads);
  NMP_UNROLL for (int i = 0; i < pixels * quads; i++) {
    to[i] = joined(&acc[i]);
  }
}

static NMP_INLINE int is_scaled(const int mode) {
  (void)mode;
  return 0;
}

#include "arch/aarch64/gemm_blocks.inc"

static NMP_INLINE void split_block(const nmp_gemm_block *b, const int pixels, const int vectors) {
  if (b->panel->highest) {
    gemm_block(b, 1, pixels, vectors);
  } else {
    gemm_block(b, 0, pixels, vectors);
  }
}

TILES(TILES_3, whole)
TILES(TILES_3, split)
BLOCKS(split, 3, 3)

static void load_split_bytes(void *to, const void *x, size_t n, size_t plane) {
  int8_t *high = to, *low = high + plane;
  const int8_t *bytes = x;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const int8x16x2_t both = vld2q_s8(bytes + 2 * i);
    vst1q_s8(low + i, veorq_s8(both.val[0], vdupq_n_s8(-128)));
    vst1q_s8(high + i, both.val[1]);
  }
  for (; i < n; i++) {
    low[i] = (int8_t)(bytes[2 * i] ^ -128);
    high[i] = bytes[2 * i + 1];
  }
}

static const nmp_gemm_product int16_product = {
    .element = 1,
    .planes = 2,
    .low = 0x80,
    .bytes = 1,
    .lanes = LANES,
    .k_group = K_GROUP,
    .load = load_split_bytes,
    .tiles = {{.pixels = PIXELS, .functions = whole_tiles, .epilogue = epilogue_int64},
              {.pixels = PIXELS, .functions = split_tiles, .epilogue = epilogue}},
    .blocks = &split_blocks,
    .extremes = 1};
NMP_GEMM_KERNEL(int16)

NMP_ISA_END

const nmp_conv_kernel *nmp_conv_neondot_words(const nmp_conv *c) {
  return c->x_wide && c->w_wide && c->k <= K_LIMIT ? &int16 : nmp_conv_neon(c);
}
#endif
