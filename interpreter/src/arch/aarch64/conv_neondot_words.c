#include "arch/aarch64/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_DOTPROD)

#define DOTPROD
#include "arch/aarch64/gemm_tiles.inc"

/* int16 times int16 by dot products of bytes: x = 256 xh + xl + 128 and w = 256 wh + wl, whose parts are int8, so that
 *   sum(x w) = 2^16 sum(xh wh) + 2^8 sum(xh wl + xl wh) + sum(xl wl) + 128 sum(w)
 * exactly. wh is 128 for the highest weights: panels with such take the high byte as it is, and 1 for each wl below 0.
 * Padded rows and panels hold words, as those of conv_neon.c do, and are split in registers.
 */
#define K_GROUP 8 /* 4 words */
#define PIXELS 3
#define LANES 4
#define K_LIMIT 65535 /* the sum in the middle, and that of weights, are below 2^31 */

typedef struct sums {
  int32x4_t high, middle, low; /* of a pixel and 4 channels */
} sums;

/* Dot products of k-group g of each pixel. xh, xl: the high bytes of 16 words, and the low ones less 128. */
static NMP_INLINE void add_k_group(sums *acc, const int8x16_t *xh, const int8x16_t *xl, const uint8_t *w, const int g,
                                   const int highest, const int pixels, const int quads) {
  NMP_UNROLL for (int q = 0; q < quads; q++) {
    const int8x16_t a = load_16(w + (g * quads + q) * 32), b = load_16(w + (g * quads + q) * 32 + 16);
    const int8x16_t wl = vuzp1q_s8(a, b), bytes = vuzp2q_s8(a, b);
    const int8x16_t below = vshrq_n_s8(wl, 7), wh = highest ? bytes : vsubq_s8(bytes, below);
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      sums *s = &acc[r * quads + q];
      s->high = dot_lane(s->high, wh, xh[r], g);
      s->middle = dot_lane(s->middle, wl, xh[r], g);
      s->middle = dot_lane(s->middle, wh, xl[r], g);
      s->low = dot_lane(s->low, wl, xl[r], g);
      if (highest) {
        s->high = dot_lane(s->high, vnegq_s8(below), xh[r], g);
        s->middle = dot_lane(s->middle, vnegq_s8(below), xl[r], g);
      }
    }
  }
}

/* 16 words of each pixel, at last behind the padded rows. */
static NMP_INLINE void load_x(int8x16_t *xh, int8x16_t *xl, const uint8_t *const *at, size_t offset, const int pixels) {
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    const int8x16_t a = load_16(at[r] + offset), b = load_16(at[r] + offset + 16);
    xl[r] = veorq_s8(vuzp1q_s8(a, b), vdupq_n_s8(-128));
    xh[r] = vuzp2q_s8(a, b);
  }
}

static NMP_INLINE const uint8_t *add_k_groups(sums *acc, const uint8_t *const *at, size_t offset, size_t n,
                                              const uint8_t *w, const int highest, const int pixels, const int quads) {
  int8x16_t xl[PIXELS], xh[PIXELS];
  size_t i = 0;
  for (; i + 4 <= n; i += 4, w += 4 * quads * 32, offset += 4 * K_GROUP) {
    load_x(xh, xl, at, offset, pixels);
    add_k_group(acc, xh, xl, w, 0, highest, pixels, quads);
    add_k_group(acc, xh, xl, w, 1, highest, pixels, quads);
    add_k_group(acc, xh, xl, w, 2, highest, pixels, quads);
    add_k_group(acc, xh, xl, w, 3, highest, pixels, quads);
  }
  if (i < n) {
    load_x(xh, xl, at, offset, pixels);
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

/* 2 of the 4 channels */
static NMP_INLINE int64x2_t joined_sums(int32x2_t high, int32x2_t middle, int32x2_t low, int32x2_t weights) {
  const int64x2_t ends = vaddw_s32(vshll_n_s32(high, 16), low);
  return vaddq_s64(ends, vaddq_s64(vshll_n_s32(middle, 8), vshll_n_s32(weights, 7)));
}

static NMP_INLINE void tile(nmp_gemm_tile *t, const int highest, const int pixels, const int quads) {
  const uint8_t *w = (const uint8_t *)(t->panel + 1), *x[PIXELS];
  sums acc[PIXELS * 2];
  NMP_UNROLL for (int i = 0; i < pixels * quads; i++) {
    acc[i].high = acc[i].middle = acc[i].low = vdupq_n_s32(0);
  }
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    x[r] = t->x[r];
  }
  for (size_t s = 0; s < t->segment_count; s++) {
    w = add_k_groups(acc, x, t->segments[s], t->k_groups, w, highest, pixels, quads);
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

static NMP_INLINE void split(nmp_gemm_tile *t, const int pixels, const int vectors) {
  if (t->panel->highest) {
    tile(t, 1, pixels, vectors);
  } else {
    tile(t, 0, pixels, vectors);
  }
}

TILES(TILES_3, split)

static const nmp_gemm_product int16_product = {
    .element = 2,
    .planes = 1,
    .lanes = LANES,
    .k_group = K_GROUP,
    .load = load_words,
    .tiles = {{.pixels = PIXELS, .functions = split_tiles, .epilogue = epilogue_int64},
              {.pixels = 2, .functions = nmp_neon_words, .epilogue = epilogue}},
    .extremes = 1};
NMP_GEMM_KERNEL(int16)

NMP_ISA_END

const nmp_conv_kernel *nmp_conv_neondot_words(const nmp_conv *c) {
  return c->x_wide && c->w_wide && c->k <= K_LIMIT ? &int16 : nmp_conv_neon(c);
}
#endif
