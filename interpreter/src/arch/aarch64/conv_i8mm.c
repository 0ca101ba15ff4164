#include "arch/aarch64/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_I8MM)

#define DOTPROD
#include "arch/aarch64/gemm_tiles.inc"

/* smmla multiplies a matrix of 2 pixels x 8 bytes by one of 8 bytes x 2 channels. A k-group is these 8 bytes, a vector
 * 8 channels: four registers. Pixels go in pairs: those with the same number in the two runs of a block. A sum is
 * [2 pixels][2 channels]; those of a pair of pixels lie side by side.
 */
#define K_GROUP 8
#define PIXELS 4 /* of a tile */
#define LANES 8
#define PAIRS 4 /* of a block with one vector, half of them with two */

static NMP_INLINE int8x16_t low_halves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

static NMP_INLINE int8x16_t high_halves(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

/* Twice two values, of two channels. */
static NMP_INLINE int32x4_t twice(const int32_t *two) {
  int64_t both;
  memcpy(&both, two, sizeof(both));
  return vreinterpretq_s32_s64(vdupq_n_s64(both));
}

/* Adds the products of a k-group. Weights of four channels are loaded by one instruction. */
static NMP_INLINE void add_k_group(int32x4_t *acc, const int8x16_t *x, const uint8_t *w, const int pairs,
                                   const int twos) {
  NMP_UNROLL for (int c = 0; c < twos; c += 2) {
    const int8x16_t first = load_16(w + c * 16), second = load_16(w + (c + 1) * 16);
    NMP_UNROLL for (int r = 0; r < pairs; r++) {
      acc[r * twos + c] = vmmlaq_s32(acc[r * twos + c], x[r], first);
      KEEP(acc[r * twos + c]);
    }
    NMP_UNROLL for (int r = 0; r < pairs; r++) {
      acc[r * twos + c + 1] = vmmlaq_s32(acc[r * twos + c + 1], x[r], second);
      KEEP(acc[r * twos + c + 1]);
    }
  }
}

/* at: [pair][2 pixels] */
static NMP_INLINE const uint8_t *add_k_groups(int32x4_t *acc, const uint8_t *const *at, size_t offset, size_t n,
                                              const uint8_t *w, const int pairs, const int twos) {
  int8x16_t x[PAIRS], next[PAIRS];
  for (; n >= 2; n -= 2, w += 2 * twos * 16, offset += 2 * K_GROUP) {
    NMP_UNROLL for (int r = 0; r < pairs; r++) {
      const int8x16_t a = load_16(at[2 * r] + offset), b = load_16(at[2 * r + 1] + offset);
      x[r] = low_halves(a, b);
      next[r] = high_halves(a, b);
    }
    add_k_group(acc, x, w, pairs, twos);
    add_k_group(acc, next, w + twos * 16, pairs, twos);
  }
  if (n > 0) {
    NMP_UNROLL for (int r = 0; r < pairs; r++) {
      x[r] = vcombine_s8(load_8(at[2 * r] + offset), load_8(at[2 * r + 1] + offset));
    }
    add_k_group(acc, x, w, pairs, twos);
    w += twos * 16;
  }
  return w;
}

/* Sums with their start. */
static NMP_INLINE void add_segments(int32x4_t *acc, const uint8_t *const *x, const nmp_gemm_panel *panel,
                                    const uint32_t *segments, size_t segment_count, size_t k_groups, const int pairs,
                                    const int twos) {
  const uint8_t *w = (const uint8_t *)(panel + 1);
  NMP_UNROLL for (int c = 0; c < twos; c++) {
    const int32x4_t start = twice(panel->start + 2 * c);
    NMP_UNROLL for (int r = 0; r < pairs; r++) {
      acc[r * twos + c] = start;
    }
  }
  NMP_UNROLL for (int i = 0; i < pairs * twos; i++) {
    KEEP(acc[i]);
  }
  for (size_t s = 0; s < segment_count; s++) {
    w = add_k_groups(acc, x, segments[s], k_groups, w, pairs, twos);
  }
}

/* Those of a pair as [pixel][4 channels]. */
static NMP_INLINE void of_pixels(int32x4_t *first, int32x4_t *second, const int32x4_t *sums) {
  const int64x2_t a = vreinterpretq_s64_s32(sums[0]), b = vreinterpretq_s64_s32(sums[1]);
  *first = vreinterpretq_s32_s64(vzip1q_s64(a, b));
  *second = vreinterpretq_s32_s64(vzip2q_s64(a, b));
}

/* As [pixel][lane]; a last pixel without another one is twice in its pair. */
static NMP_INLINE void store_sums(int32_t *to, const int32x4_t *acc, const int pixels, const int twos) {
  NMP_UNROLL for (int r = 0; r < pixels; r += 2) {
    NMP_UNROLL for (int c = 0; c < twos; c += 2) {
      int32x4_t first, second;
      of_pixels(&first, &second, acc + r / 2 * twos + c);
      vst1q_s32(to + r * 2 * twos + 2 * c, first);
      if (r + 1 < pixels) {
        vst1q_s32(to + (r + 1) * 2 * twos + 2 * c, second);
      }
    }
  }
}

static NMP_INLINE void bytes(nmp_gemm_tile *t, const int pixels, const int vectors) {
  const int twos = vectors * LANES / 2, pairs = (pixels + 1) / 2;
  const uint8_t *x[PIXELS];
  int32x4_t acc[PIXELS / 2 * LANES];
  NMP_UNROLL for (int r = 0; r < 2 * pairs; r++) {
    x[r] = t->x[r < pixels ? r : pixels - 1];
  }
  add_segments(acc, x, t->panel, t->segments, t->segment_count, t->k_groups, pairs, twos);
  store_sums(t->sums, acc, pixels, twos);
}

TILES(TILES_4, bytes)

/* 8 channels of a pair of pixels as int16: [4][2 pixels][2 channels] */
static NMP_INLINE void words_of(int16x8_t words[2], const int32x4_t *sums, const int32x4_t *left) {
  NMP_UNROLL for (int i = 0; i < 2; i++) {
    const int16x4_t low = vqmovn_s32(vshlq_s32(sums[2 * i], left[2 * i]));
    words[i] = vqmovn_high_s32(low, vshlq_s32(sums[2 * i + 1], left[2 * i + 1]));
  }
}

/* One pixel's, or the other one's, of pairs of values. */
static NMP_INLINE int16x8_t even_pairs(int16x8_t a, int16x8_t b) {
  return vreinterpretq_s16_s32(vuzp1q_s32(vreinterpretq_s32_s16(a), vreinterpretq_s32_s16(b)));
}

static NMP_INLINE int16x8_t odd_pairs(int16x8_t a, int16x8_t b) {
  return vreinterpretq_s16_s32(vuzp2q_s32(vreinterpretq_s32_s16(a), vreinterpretq_s32_s16(b)));
}

/* Bytes of pairs of channels of a pair of pixels, which uzp moves as words: q is [8 channels]. */
static NMP_INLINE void store_bytes(uint8_t *first, uint8_t *second, const int16x8_t *q, const int vectors) {
  const int8x16_t a = vreinterpretq_s8_s16(vuzp1q_s16(q[0], q[vectors - 1]));
  const int8x16_t b = vreinterpretq_s8_s16(vuzp2q_s16(q[0], q[vectors - 1]));
  if (vectors == 2) {
    vst1q_s8((int8_t *)first, a);
    vst1q_s8((int8_t *)second, b);
  } else {
    vst1_s8((int8_t *)first, vget_low_s8(a));
    vst1_s8((int8_t *)second, vget_low_s8(b));
  }
}

static NMP_INLINE void store_all(const nmp_gemm_block *b, uint8_t *const *y, const int32x4_t *acc, const int y_wide,
                                 const int pairs, const int vectors) {
  int32_t least = b->lo, most = b->hi;
  NMP_KEEP("+r", least); /* as vectors they have no place while there are sums */
  NMP_KEEP("+r", most);
  const int16x8_t lo = vdupq_n_s16((int16_t)least), hi = vdupq_n_s16((int16_t)most);
  const int8x16_t lo8 = vdupq_n_s8((int8_t)least), hi8 = vdupq_n_s8((int8_t)most);
  int16x8_t q[PAIRS * 2];
  NMP_UNROLL for (int v = 0; v < vectors; v++) {
    int32x4_t left[4];
    NMP_UNROLL for (int i = 0; i < 4; i++) {
      left[i] = vnegq_s32(twice(b->panel->shift + 8 * v + 2 * i));
    }
    NMP_UNROLL for (int r = 0; r < pairs; r++) {
      int16x8_t words[2];
      words_of(words, acc + (r * vectors + v) * 4, left);
      if (y_wide) {
        const int16x8_t w0 = vminq_s16(vmaxq_s16(words[0], lo), hi), w1 = vminq_s16(vmaxq_s16(words[1], lo), hi);
        vst1q_s16((int16_t *)(void *)(y[0] + (size_t)r * b->y_step + 16 * v), even_pairs(w0, w1));
        vst1q_s16((int16_t *)(void *)(y[1] + (size_t)r * b->y_step + 16 * v), odd_pairs(w0, w1));
      } else {
        const int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(words[0]), words[1]);
        q[r * vectors + v] = vreinterpretq_s16_s8(vminq_s8(vmaxq_s8(bytes, lo8), hi8));
      }
    }
  }
  NMP_UNROLL for (int r = 0; r < pairs && !y_wide; r++) {
    store_bytes(y[0] + (size_t)r * b->y_step, y[1] + (size_t)r * b->y_step, q + r * vectors, vectors);
  }
}

/* Ends that lack lanes go through memory. */
static NMP_INLINE void store_some(const nmp_gemm_block *b, uint8_t *const *y, const int32x4_t *acc, const int pairs,
                                  const int vectors) {
  const size_t lanes = (size_t)vectors * LANES;
  NMP_UNROLL for (int r = 0; r < pairs; r++) {
    int32_t sums[4 * LANES];
    store_sums(sums, acc + r * vectors * LANES / 2, 2, vectors * LANES / 2);
    for (size_t i = 0; i < 2; i++) {
      epilogue_sums(b->panel, sums + i * lanes, 1, lanes, b->channels, y[i] + (size_t)r * b->y_step, 0, b->y_wide,
                    b->lo, b->hi);
    }
  }
}

static NMP_INLINE void bytes_block(const nmp_gemm_block *blocks, const int pairs, const int vectors) {
  const nmp_gemm_block b = *blocks;
  const int twos = vectors * LANES / 2;
  size_t hop = 0, y_hop = 0;
  for (size_t i = b.count; i > 0; i--, hop += b.x_hop, y_hop += b.y_hop) {
    const uint8_t *x[2 * PAIRS];
    uint8_t *y[2] = {b.y[0] + y_hop, b.y[1] + y_hop};
    int32x4_t acc[PAIRS * LANES];
    NMP_UNROLL for (int r = 0; r < pairs; r++) {
      x[2 * r] = b.x[0] + hop + (size_t)r * b.x_step;
      x[2 * r + 1] = b.x[1] + hop + (size_t)r * b.x_step;
    }
    add_segments(acc, x, b.panel, b.segments, b.segment_count, b.k_groups, pairs, twos);
    if (b.channels < (size_t)vectors * LANES) {
      store_some(&b, y, acc, pairs, vectors);
    } else if (b.y_wide) {
      store_all(&b, y, acc, 1, pairs, vectors);
    } else {
      store_all(&b, y, acc, 0, pairs, vectors);
    }
  }
}

TILES_4(BLOCK, bytes, 1)
TILES_2(BLOCK, bytes, 2)

static const nmp_gemm_blocks bytes_blocks = {
    .most = {PAIRS, 2},
    .functions = {{TILES_4(BLOCK_NAME, bytes, 1)}, {TILES_2(BLOCK_NAME, bytes, 2)}},
    .runs = 2,
    .panels = 1};

static const nmp_gemm_product int8_product = {
    .element = 1,
    .planes = 1,
    .lanes = LANES,
    .k_group = K_GROUP,
    .load = load_bytes,
    .tiles = {{.pixels = PIXELS, .functions = bytes_tiles, .epilogue = epilogue_any},
              {.pixels = PIXELS, .functions = bytes_tiles, .epilogue = epilogue}},
    .blocks = &bytes_blocks};
NMP_GEMM_KERNEL(int8)

NMP_ISA_END

/* A single pixel would be in both halves of its pair. */
const nmp_conv_kernel *nmp_conv_i8mm(const nmp_conv *c) {
  return c->x_wide || c->w_wide || nmp_conv_is_depthwise(c) || nmp_conv_pixels(c) == 1 ? nmp_conv_neondot(c) : &int8;
}
#endif
