#include "arch/aarch64/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

NMP_TARGET_BEGIN(NMP_TARGET_DOTPROD)

#include "arch/aarch64/tile.inc"

/* A k-group is the 4 bytes of a dot product, a vector 8 channels: two registers. */
#define K_GROUP 4
#define PIXELS 4
#define LANES 8

#define LOAD_16(p) vld1q_s8((const int8_t *)(p))

/* Dot products of k-group g of each pixel, whose bytes are in x: a constant lane. */
#define ADD_K_GROUP(g)                                                            \
  UNROLL for (int q = 0; q < quads; q++) {                                        \
    const int8x16_t factors = LOAD_16(w + (g * quads + q) * 16);                  \
    UNROLL for (int r = 0; r < pixels; r++) {                                     \
      acc[r * quads + q] = vdotq_laneq_s32(acc[r * quads + q], factors, x[r], g); \
    }                                                                             \
  }

/* acc is [pixel][4 channels]. */
INLINE const uint8_t *add_k_groups(int32x4_t *acc, const uint8_t *const *at, size_t offset, size_t n, const uint8_t *w,
                                   const int pixels, const int quads) {
  int8x16_t x[PIXELS];
  size_t i = 0;
  for (; i + 4 <= n; i += 4, w += 4 * quads * 16, offset += 4 * K_GROUP) {
    UNROLL for (int r = 0; r < pixels; r++) {
      x[r] = LOAD_16(at[r] + offset);
    }
    ADD_K_GROUP(0)
    ADD_K_GROUP(1)
    ADD_K_GROUP(2)
    ADD_K_GROUP(3)
  }
  if (i < n) { /* 16 bytes, too: behind padded rows there are as many */
    UNROLL for (int r = 0; r < pixels; r++) {
      x[r] = LOAD_16(at[r] + offset);
    }
    ADD_K_GROUP(0)
    if (n - i > 1) {
      ADD_K_GROUP(1)
    }
    if (n - i > 2) {
      ADD_K_GROUP(2)
    }
    w += (n - i) * (size_t)quads * 16;
  }
  return w;
}

INLINE void bytes(nmp_gemm_tile *t, const int pixels, const int vectors) {
  const int quads = vectors * LANES / 4;
  const uint8_t *w = (const uint8_t *)(t->panel + 1), *x[PIXELS];
  int32x4_t acc[PIXELS * LANES / 2];
  UNROLL for (int i = 0; i < pixels * quads; i++) {
    acc[i] = vld1q_s32(t->panel->start + i % quads * 4);
  }
  UNROLL for (int r = 0; r < pixels; r++) {
    x[r] = t->x[r];
  }
  for (size_t s = 0; s < t->segment_count; s++) {
    w = add_k_groups(acc, x, t->segments[s], t->k_groups, w, pixels, quads);
  }
  UNROLL for (int i = 0; i < pixels * quads; i++) {
    vst1q_s32(t->sums + i * 4, acc[i]);
  }
}

TILES(TILES_4, bytes)

static const nmp_gemm_product int8_product = {
    .element = 1,
    .planes = 1,
    .lanes = LANES,
    .k_group = K_GROUP,
    .load = load_bytes,
    .tiles = {{PIXELS, bytes_tiles, epilogue_any}, {PIXELS, bytes_tiles, epilogue}},
    .extremes = 1};
NMP_GEMM_KERNEL(int8)

NMP_TARGET_END

const nmp_conv_kernel *nmp_conv_neondot(const nmp_conv *c) {
  if (nmp_conv_is_depthwise(c)) {
    return nmp_conv_portable(c);
  }
  return c->x_wide || c->w_wide ? nmp_conv_neondot_words(c) : &int8;
}
#endif
