#include "arch/aarch64/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_DOTPROD)

#define DOTPROD
#include "arch/aarch64/gemm_tiles.inc"

/* A k-group is the 4 bytes of a dot product, a vector 8 channels: two registers. */
#define K_GROUP 4
#define PIXELS 4
#define RUN 8
#define LANES 8

/* Dot products of k-group g of each pixel, whose bytes are in x. Weights of two quads are loaded by one instruction. */
static NMP_INLINE void add_k_group(int32x4_t *acc, const int8x16_t *x, const uint8_t *w, const int g, const int pixels,
                                   const int quads) {
  NMP_UNROLL for (int q = 0; q < quads; q += 2) {
    const int8x16_t first = load_16(w + (g * quads + q) * 16), second = load_16(w + (g * quads + q + 1) * 16);
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      acc[r * quads + q] = dot_lane(acc[r * quads + q], first, x[r], g);
    }
    NMP_UNROLL for (int r = 0; r < pixels; r++) {
      acc[r * quads + q + 1] = dot_lane(acc[r * quads + q + 1], second, x[r], g);
    }
  }
}

/* 16 bytes of each pixel. */
static NMP_INLINE void load_x(int8x16_t *x, const uint8_t *const *at, size_t offset, const int pixels) {
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    x[r] = load_16(at[r] + offset);
  }
}

/* One, two or three k-groups. */
static NMP_INLINE const uint8_t *add_rest(int32x4_t *acc, const int8x16_t *x, size_t n, const uint8_t *w,
                                          const int pixels, const int quads) {
  add_k_group(acc, x, w, 0, pixels, quads);
  if (n > 1) {
    add_k_group(acc, x, w, 1, pixels, quads);
  }
  if (n > 2) {
    add_k_group(acc, x, w, 2, pixels, quads);
  }
  return w + n * (size_t)quads * 16;
}

/* acc is [pixel][4 channels]. */
static NMP_INLINE const uint8_t *add_k_groups(int32x4_t *acc, const uint8_t *const *at, size_t offset, size_t n,
                                              const uint8_t *w, const int pixels, const int quads) {
  int8x16_t x[RUN];
  size_t i = 0;
  for (; i + 4 <= n; i += 4, w += 4 * quads * 16, offset += 4 * K_GROUP) {
    load_x(x, at, offset, pixels);
    add_k_group(acc, x, w, 0, pixels, quads);
    add_k_group(acc, x, w, 1, pixels, quads);
    add_k_group(acc, x, w, 2, pixels, quads);
    add_k_group(acc, x, w, 3, pixels, quads);
  }
  if (i < n) { /* 16 bytes, too: behind padded rows there are as many */
    load_x(x, at, offset, pixels);
    w = add_rest(acc, x, n - i, w, pixels, quads);
  }
  return w;
}

/* Sums with their start of the pixels at x; `segments`: their distances from x. */
static NMP_INLINE void add_segments(int32x4_t *acc, const uint8_t *const *x, const nmp_gemm_panel *panel,
                                    const uint32_t *segments, size_t segment_count, size_t k_groups, const int pixels,
                                    const int quads) {
  const uint8_t *w = (const uint8_t *)(panel + 1);
  NMP_UNROLL for (int i = 0; i < pixels * quads; i++) {
    acc[i] = vld1q_s32(panel->start + i % quads * 4);
  }
  for (size_t s = 0; s < segment_count; s++) {
    w = add_k_groups(acc, x, segments[s], k_groups, w, pixels, quads);
  }
}

static NMP_INLINE void bytes(nmp_gemm_tile *t, const int pixels, const int vectors) {
  const int quads = vectors * LANES / 4;
  const uint8_t *x[PIXELS];
  int32x4_t acc[PIXELS * LANES / 2];
  NMP_UNROLL for (int r = 0; r < pixels; r++) {
    x[r] = t->x[r];
  }
  add_segments(acc, x, t->panel, t->segments, t->segment_count, t->k_groups, pixels, quads);
  NMP_UNROLL for (int i = 0; i < pixels * quads; i++) {
    vst1q_s32(t->sums + i * 4, acc[i]);
  }
}

static NMP_INLINE void block_sums(int32x4_t *sums, const uint8_t *const *x, const nmp_gemm_block *b, const int mode,
                                  const int pixels, const int vectors) {
  (void)mode; /* there is only one */
  add_segments(sums, x, b->panel, b->segments, b->segment_count, b->k_groups, pixels, vectors * LANES / 4);
}

static NMP_INLINE int is_scaled(const int mode) {
  (void)mode;
  return 0;
}

#include "arch/aarch64/gemm_blocks.inc"

static NMP_INLINE void bytes_block(const nmp_gemm_block *b, const int pixels, const int vectors) {
  gemm_block(b, 0, pixels, vectors);
}

TILES(TILES_4, bytes)
BLOCKS(bytes, 8, 4)

/* Kind: there is only one. */
static NMP_INLINE const uint8_t *gemv_strip(const nmp_gemv *g, const int kind, const int vectors) {
  const int quads = vectors * LANES / 4;
  const int16x8_t lo = vdupq_n_s16((int16_t)g->lo), hi = vdupq_n_s16((int16_t)g->hi);
  const uint8_t *w = g->w, *at = g->x;
  int32x4_t acc[NMP_STRIP * LANES / 4];
  int8x16_t x[1];
  size_t left = g->k_groups;
  (void)kind;
  NMP_UNROLL for (int i = 0; i < quads; i++) {
    acc[i] = vld1q_s32(g->start + i * 4);
  }
  for (; left >= 4; left -= 4, w += 4 * quads * 16, at += 16) {
    load_x(x, &at, 0, 1);
    add_k_group(acc, x, w, 0, 1, quads);
    add_k_group(acc, x, w, 1, 1, quads);
    add_k_group(acc, x, w, 2, 1, quads);
    add_k_group(acc, x, w, 3, 1, quads);
  }
  if (left > 0) {
    uint8_t rest[16] = {0};
    memcpy(rest, at, left * K_GROUP);
    x[0] = load_16(rest);
    w = add_rest(acc, x, left, w, 1, quads);
  }
  NMP_UNROLL for (int i = 0; i < vectors; i++) {
    const int16x8_t shift = vnegq_s16(vmovl_s8(vld1_s8(g->shift + i * LANES)));
    const int16x4_t low = vqmovn_s32(vshlq_s32(acc[2 * i], vmovl_s16(vget_low_s16(shift))));
    const int16x8_t q = vqmovn_high_s32(low, vshlq_s32(acc[2 * i + 1], vmovl_high_s16(shift)));
    store(g->y + (i * LANES << g->y_wide), vminq_s16(vmaxq_s16(q, lo), hi), g->channels - (size_t)(i * LANES),
          g->y_wide);
  }
  return w;
}

#include "conv/gemm/gemv.inc"

GEMV(bytes, 0)

static const nmp_gemm_product int8_product = {
    .element = 1,
    .planes = 1,
    .lanes = LANES,
    .k_group = K_GROUP,
    .load = load_bytes,
    .tiles = {{.pixels = PIXELS, .functions = bytes_tiles, .epilogue = epilogue_any},
              {.pixels = PIXELS, .functions = bytes_tiles, .epilogue = epilogue}},
    .blocks = &bytes_blocks,
    .gemv = gemv_bytes,
    .gemv_as_is = 1,
    .extremes = 1};
NMP_GEMM_KERNEL(int8)

NMP_ISA_END

const nmp_conv_kernel *nmp_conv_neondot(const nmp_conv *c) {
  if (nmp_conv_is_depthwise(c)) {
    return nmp_conv_portable(c);
  }
  return c->x_wide || c->w_wide ? nmp_conv_neondot_words(c) : &int8;
}
#endif
