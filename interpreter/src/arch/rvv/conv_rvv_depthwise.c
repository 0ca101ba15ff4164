/* Depthwise convolutions with RISC-V's vectors: a vector of channels of an output pixel, tap by tap. Of 3x3 int8 ones,
 * pixels of a line whose windows hold no padding go together, for the weights to stay in registers.
 */
#include "arch/rvv/conv_rvv.h"

#ifdef NMP_RVV

#include "conv/patch.h"

/* The taps of a window that are pixels. */
typedef struct window {
  const uint8_t *x, *w;  /* the first one, of channel 0 */
  int32_t rows, columns; /* may be none */
  size_t pixel, line;    /* bytes from tap to tap of x */
  size_t tap, kernel;    /* of w */
} window;

typedef void pixel_fn(const nmp_conv *c, const window *at, size_t pixel);

static uint8_t *output(const nmp_conv *c, size_t pixel, size_t channel) {
  return (uint8_t *)c->y + ((pixel * c->out + channel) << c->y_wide);
}

#define EACH_TAP(X, W, STEP)                                                     \
  for (int32_t ky = 0; ky < at->rows; ky++) {                                    \
    const uint8_t *x = at->x + (size_t)ky * at->line + channel * sizeof(X);      \
    const uint8_t *w = at->w + (size_t)ky * at->kernel + channel * sizeof(W);    \
    for (int32_t kx = 0; kx < at->columns; kx++, x += at->pixel, w += at->tap) { \
      const X *xs = (const X *)(const void *)x;                                  \
      const W *ws = (const W *)(const void *)w;                                  \
      STEP                                                                       \
    }                                                                            \
  }

#define LOAD_8_M2(from) __riscv_vsext_vf2_i16m2(__riscv_vle8_v_i8m1(from, vl), vl)
#define LOAD_16_M2(from) __riscv_vle16_v_i16m2(from, vl)
#define LOAD_8_M1(from) __riscv_vsext_vf2_i16m1(__riscv_vle8_v_i8mf2(from, vl), vl)
#define LOAD_16_M1(from) __riscv_vle16_v_i16m1(from, vl)

#define PIXEL_32(name, X, W, PRODUCT)                                   \
  static void name(const nmp_conv *c, const window *at, size_t pixel) { \
    for (size_t channel = 0, vl; channel < c->out; channel += vl) {     \
      vl = __riscv_vsetvl_e32m4(c->out - channel);                      \
      vint32m4_t sum = __riscv_vmv_v_x_i32m4(0, vl);                    \
      EACH_TAP(X, W, sum = PRODUCT;)                                    \
      nmp_rvv_end_32(c, output(c, pixel, channel), sum, channel, vl);   \
    }                                                                   \
  }
#define PRODUCT_8X8 \
  __riscv_vwadd_wv_i32m4(sum, __riscv_vwmul_vv_i16m2(__riscv_vle8_v_i8m1(xs, vl), __riscv_vle8_v_i8m1(ws, vl), vl), vl)

PIXEL_32(pixel_32_8x8, int8_t, int8_t, PRODUCT_8X8)
PIXEL_32(pixel_32_8x16, int8_t, int16_t, __riscv_vwmacc_vv_i32m4(sum, LOAD_8_M2(xs), LOAD_16_M2(ws), vl))
PIXEL_32(pixel_32_16x8, int16_t, int8_t, __riscv_vwmacc_vv_i32m4(sum, LOAD_16_M2(xs), LOAD_8_M2(ws), vl))
PIXEL_32(pixel_32_16x16, int16_t, int16_t, __riscv_vwmacc_vv_i32m4(sum, LOAD_16_M2(xs), LOAD_16_M2(ws), vl))

#define PIXEL_64(name, X, W, LOAD_X, LOAD_W)                                                                     \
  static void name(const nmp_conv *c, const window *at, size_t pixel) {                                          \
    for (size_t channel = 0, vl; channel < c->out; channel += vl) {                                              \
      vl = __riscv_vsetvl_e64m4(c->out - channel);                                                               \
      vint64m4_t sum = __riscv_vmv_v_x_i64m4(0, vl);                                                             \
      EACH_TAP(X, W, sum = __riscv_vwadd_wv_i64m4(sum, __riscv_vwmul_vv_i32m2(LOAD_X(xs), LOAD_W(ws), vl), vl);) \
      nmp_rvv_end_64(c, output(c, pixel, channel), sum, channel, vl);                                            \
    }                                                                                                            \
  }

PIXEL_64(pixel_64_8x16, int8_t, int16_t, LOAD_8_M1, LOAD_16_M1)
PIXEL_64(pixel_64_16x8, int16_t, int8_t, LOAD_16_M1, LOAD_8_M1)
PIXEL_64(pixel_64_16x16, int16_t, int16_t, LOAD_16_M1, LOAD_16_M1)

/* The products of a tap, and what is between the taps of a pixel. */
#define EACH_OF_9(DO) \
  DO(0, 0, 0) DO(1, 0, 1) DO(2, 0, 2) DO(3, 1, 0) DO(4, 1, 1) DO(5, 1, 2) DO(6, 2, 0) DO(7, 2, 1) DO(8, 2, 2)
#define WEIGHTS(t, row, column) const vint8m1_t w##t = __riscv_vle8_v_i8m1(w + (t) * (size_t)c->out, vl);
#define TAP(t, row, column)                                                                                        \
  sum = __riscv_vwadd_wv_i32m4(                                                                                    \
      sum, __riscv_vwmul_vv_i16m2(w##t, __riscv_vle8_v_i8m1(x + (row) * at->line + (column) * at->pixel, vl), vl), \
      vl);

/* `pixels` from this one on, whose windows are whole. */
static void line_of_three(const nmp_conv *c, const window *at, size_t pixel, size_t pixels) {
  const size_t step = (size_t)c->h.stride * c->in;
  for (size_t channel = 0, vl; channel < c->out; channel += vl) {
    vl = __riscv_vsetvl_e32m4(c->out - channel);
    const int8_t *w = (const int8_t *)at->w + channel, *x = (const int8_t *)at->x + channel;
    EACH_OF_9(WEIGHTS)
    for (size_t i = 0; i < pixels; i++, x += step) {
      vint32m4_t sum = __riscv_vmv_v_x_i32m4(0, vl);
      EACH_OF_9(TAP)
      nmp_rvv_end_32(c, output(c, pixel + i, channel), sum, channel, vl);
    }
  }
}

/* How many pixels of a line from this one on have windows without padding, as it has. */
static size_t whole_windows(const nmp_conv *c, size_t pixel) {
  const int32_t column = (int32_t)(pixel % (size_t)c->h.out), reach = (c->h.kernel - 1) * c->h.dilation;
  const int32_t last = (c->h.in - 1 - reach + c->h.before) / c->h.stride;
  return (size_t)((last < c->h.out - 1 ? last : c->h.out - 1) - column + 1);
}

static window window_of(const nmp_conv *c, size_t pixel) {
  const nmp_place at = nmp_locate(c, pixel);
  const size_t element = (size_t)1 << c->x_wide, tap = (size_t)c->out << c->w_wide;
  window w = {.pixel = (size_t)c->h.dilation * c->in * element,
              .line = (size_t)c->v.dilation * (size_t)c->h.in * c->in * element,
              .tap = tap,
              .kernel = tap * (size_t)c->h.kernel};
  int32_t top, bottom, left, right;
  nmp_clip(&c->v, at.y, &top, &bottom);
  nmp_clip(&c->h, at.x, &left, &right);
  if (bottom > top && right > left) {
    w.rows = bottom - top;
    w.columns = right - left;
    w.x = nmp_element(c, at, nmp_pixel(&c->v, at.y, top), nmp_pixel(&c->h, at.x, left), 0);
    w.w = nmp_rvv_weights(c) + (size_t)(top * c->h.kernel + left) * tap;
  }
  return w;
}

static void run(const nmp_conv *c, size_t task, size_t of) {
  static pixel_fn *const table[2][2][2] = {
      {{pixel_32_8x8, pixel_32_8x16}, {pixel_32_16x8, pixel_32_16x16}},
      {{NULL, pixel_64_8x16}, {pixel_64_16x8, pixel_64_16x16}},
  };
  const nmp_rvv_head *head = c->packed;
  pixel_fn *compute = table[head->sums != NMP_RVV_32][c->x_wide][c->w_wide];
  const int three = c->v.kernel == 3 && c->h.kernel == 3 && compute == pixel_32_8x8;
  const size_t pixels = nmp_conv_pixels(c), end = pixels * (task + 1) / of;
  for (size_t pixel = pixels * task / of, n; pixel < end; pixel += n) {
    const window at = window_of(c, pixel);
    n = 1;
    if (three && at.rows == 3 && at.columns == 3) {
      const size_t whole = whole_windows(c, pixel);
      n = whole < end - pixel ? whole : end - pixel;
      line_of_three(c, &at, pixel, n);
    } else {
      compute(c, &at, pixel);
    }
  }
}

static size_t tasks(const nmp_conv *c, size_t threads) {
  const size_t most = (nmp_conv_pixels(c) + 31) / 32;
  return threads < most ? threads : most;
}

const nmp_conv_kernel *nmp_conv_rvv_depthwise(const nmp_conv *c) {
  static const nmp_conv_kernel depthwise = {
      .packed = nmp_conv_rvv_packed, .pack = nmp_conv_rvv_pack, .tasks = tasks, .run = run};
  return c->pad == NULL && nmp_conv_rvv_ends(c, 31) ? &depthwise : NULL;
}

#endif
