/* Dense convolutions with RISC-V's vectors: a vector of output channels of six pixels at a time. Weights are packed
 * channel beside channel, so that a factor of a pixel times a vector of them is one instruction.
 *
 * 1. Sums that fit 32 bits, as conv/fits_int32.h proves: int8 x int8 always.
 * 2. Other sums are 64 bits wide. Two products of int16 are added up in 32 bits first, where no weight is -32768.
 *
 * Fewer than four pixels are left to the portable way, which reads the weights in place.
 */
#include "arch/rvv/conv_rvv.h"

#ifdef NMP_RVV

#include <string.h>

#include "conv/patch.h"

/* With vectors a few bytes take fewer instructions than a call. */
static inline void copy(uint8_t *to, const uint8_t *from, size_t bytes) {
  for (size_t vl; bytes > 0; bytes -= vl, to += vl, from += vl) {
    vl = __riscv_vsetvl_e8m8(bytes);
    __riscv_vse8_v_u8m8(to, __riscv_vle8_v_u8m8(from, vl), vl);
  }
}

#define GATHER gather
#define COPY copy
static void GATHER(const nmp_conv *c, nmp_place at, size_t group, uint8_t *patch);
#include "conv/patch.inc"

#define PIXELS 6

static size_t out_per_group(const nmp_conv *c) {
  return c->out / c->groups;
}

/* Some pixels of a group. Those that are not there are copies of the last one, and are not stored. */
typedef struct tile {
  const void *x[PIXELS];
  size_t pixel, pixels;
} tile;

typedef void tile_fn(const nmp_conv *c, const tile *t, size_t first, size_t count, const void *weights);

#define EACH_PIXEL(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)

#define X_OF(p) const X *x##p = t->x[p];
#define END(p, name)                                                                                  \
  if (p < t->pixels) {                                                                                \
    name(c, (uint8_t *)c->y + (((t->pixel + p) * c->out + channel) << c->y_wide), a##p, channel, vl); \
  }

/* LOAD: vl weights as int16. */
#define LOAD_8_M2(w, vl) __riscv_vsext_vf2_i16m2(__riscv_vle8_v_i8m1(w, vl), vl)
#define LOAD_16_M2(w, vl) __riscv_vle16_v_i16m2(w, vl)
#define LOAD_8_M1(w, vl) __riscv_vsext_vf2_i16m1(__riscv_vle8_v_i8mf2(w, vl), vl)
#define LOAD_16_M1(w, vl) __riscv_vle16_v_i16m1(w, vl)

#define ZERO_32(p) vint32m4_t a##p = __riscv_vmv_v_x_i32m4(0, vl);
#define STEP_32(p) a##p = __riscv_vwmacc_vx_i32m4(a##p, *x##p++, w, vl);
#define END_32(p) END(p, nmp_rvv_end_32)

#define TILE_32(name, X_TYPE, W, LOAD)                                                                  \
  static void name(const nmp_conv *c, const tile *t, size_t first, size_t count, const void *weights) { \
    typedef X_TYPE X;                                                                                   \
    for (size_t done = 0, vl; done < count; done += vl) {                                               \
      const size_t channel = first + done;                                                              \
      const W *ws = (const W *)weights + done;                                                          \
      EACH_PIXEL(X_OF)                                                                                  \
      vl = __riscv_vsetvl_e16m2(count - done);                                                          \
      EACH_PIXEL(ZERO_32)                                                                               \
      _Pragma("GCC unroll 4") for (size_t left = c->k; left > 0; left--, ws += count) {                 \
        const vint16m2_t w = LOAD(ws, vl);                                                              \
        EACH_PIXEL(STEP_32)                                                                             \
      }                                                                                                 \
      EACH_PIXEL(END_32)                                                                                \
    }                                                                                                   \
  }

TILE_32(tile_32_8x8, int8_t, int8_t, LOAD_8_M2)
TILE_32(tile_32_8x16, int8_t, int16_t, LOAD_16_M2)
TILE_32(tile_32_16x8, int16_t, int8_t, LOAD_8_M2)
TILE_32(tile_32_16x16, int16_t, int16_t, LOAD_16_M2)

#define ZERO_64(p) vint64m4_t a##p = __riscv_vmv_v_x_i64m4(0, vl);
#define STEP_64(p) a##p = __riscv_vwadd_wv_i64m4(a##p, __riscv_vwmul_vx_i32m2(w, *x##p++, vl), vl);
#define PAIR_64(p)                                                                         \
  {                                                                                        \
    const vint32m2_t one = __riscv_vwmul_vx_i32m2(w, x##p[0], vl);                         \
    a##p = __riscv_vwadd_wv_i64m4(a##p, __riscv_vwmacc_vx_i32m2(one, x##p[1], v, vl), vl); \
    x##p += 2;                                                                             \
  }
#define END_64(p) END(p, nmp_rvv_end_64)

/* PAIRS: of the k products, how many are added up by twos. */
#define TILE_64(name, X_TYPE, W, LOAD, PAIRS)                                                           \
  static void name(const nmp_conv *c, const tile *t, size_t first, size_t count, const void *weights) { \
    typedef X_TYPE X;                                                                                   \
    for (size_t done = 0, vl; done < count; done += vl) {                                               \
      const size_t channel = first + done;                                                              \
      const W *ws = (const W *)weights + done;                                                          \
      size_t left = c->k;                                                                               \
      EACH_PIXEL(X_OF)                                                                                  \
      vl = __riscv_vsetvl_e16m1(count - done);                                                          \
      EACH_PIXEL(ZERO_64)                                                                               \
      _Pragma("GCC unroll 2") for (; (PAIRS) && left > 1; left -= 2, ws += 2 * count) {                 \
        const vint16m1_t w = LOAD(ws, vl), v = LOAD(ws + count, vl);                                    \
        EACH_PIXEL(PAIR_64)                                                                             \
      }                                                                                                 \
      for (; left > 0; left--, ws += count) {                                                           \
        const vint16m1_t w = LOAD(ws, vl);                                                              \
        EACH_PIXEL(STEP_64)                                                                             \
      }                                                                                                 \
      EACH_PIXEL(END_64)                                                                                \
    }                                                                                                   \
  }

TILE_64(tile_64_8x16, int8_t, int16_t, LOAD_16_M1, 1)
TILE_64(tile_64_16x8, int16_t, int8_t, LOAD_8_M1, 1)
TILE_64(tile_64_16x16, int16_t, int16_t, LOAD_16_M1, 1)
TILE_64(tile_64_any, int16_t, int16_t, LOAD_16_M1, 0)

static size_t tiles(const nmp_conv *c) {
  return (nmp_conv_pixels(c) + PIXELS - 1) / PIXELS;
}

static size_t rvv_scratch(const nmp_conv *c) {
  return nmp_conv_is_direct(c) ? 0 : nmp_round_up((size_t)PIXELS * c->k << c->x_wide, 16);
}

static size_t rvv_tasks(const nmp_conv *c, size_t threads) {
  const size_t most = (tiles(c) + 3) / 4;
  return threads < most ? threads : most;
}

static tile tile_of(const nmp_conv *c, size_t pixel, size_t group, uint8_t *patches) {
  const size_t left = nmp_conv_pixels(c) - pixel, row = (size_t)c->k << c->x_wide;
  tile t = {.pixel = pixel, .pixels = left < PIXELS ? left : PIXELS};
  for (size_t p = 0; p < PIXELS; p++) {
    if (p >= t.pixels) {
      t.x[p] = t.x[p - 1];
    } else if (nmp_conv_is_direct(c)) {
      t.x[p] = (const uint8_t *)c->x + (pixel + p) * row;
    } else {
      gather(c, nmp_locate(c, pixel + p), group, patches + p * row);
      t.x[p] = patches + p * row;
    }
  }
  return t;
}

static void rvv_run(const nmp_conv *c, size_t task, size_t of) {
  static tile_fn *const table[][2][2] = {
      [NMP_RVV_32] = {{tile_32_8x8, tile_32_8x16}, {tile_32_16x8, tile_32_16x16}},
      [NMP_RVV_PAIRS] = {{NULL, tile_64_8x16}, {tile_64_16x8, tile_64_16x16}},
      [NMP_RVV_64] = {{NULL, NULL}, {NULL, tile_64_any}},
  };
  const nmp_rvv_head *head = c->packed;
  tile_fn *compute = table[head->sums][c->x_wide][c->w_wide];
  uint8_t *patches = c->scratch;
  const size_t outs = out_per_group(c), all = tiles(c);
  for (size_t i = all * task / of; i < all * (task + 1) / of; i++) {
    for (size_t group = 0; group < c->groups; group++) {
      const tile t = tile_of(c, i * PIXELS, group, patches);
      compute(c, &t, group * outs, outs, nmp_rvv_weights(c) + (group * outs * c->k << c->w_wide));
    }
  }
}

/* A shift of up to 31 is one of int32; 47 are of 64 bits. */
const nmp_conv_kernel *nmp_conv_rvv(const nmp_conv *c) {
  static const nmp_conv_kernel dense = {.packed = nmp_conv_rvv_packed,
                                        .pack = nmp_conv_rvv_pack,
                                        .scratch = rvv_scratch,
                                        .tasks = rvv_tasks,
                                        .run = rvv_run,
                                        .adds = 1};
  const nmp_conv_kernel *chosen = NULL;
  if (nmp_conv_is_depthwise(c)) {
    chosen = nmp_conv_rvv_depthwise(c);
  } else if (nmp_conv_pixels(c) >= 4 && nmp_conv_rvv_ends(c, 31)) {
    chosen = &dense;
  }
  return chosen ? chosen : nmp_conv_portable(c);
}

#endif
