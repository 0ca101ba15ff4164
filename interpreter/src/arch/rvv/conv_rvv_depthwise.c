/* Depthwise convolutions with RISC-V's vectors: a vector of channels of an output pixel, tap by tap. Of 3x3 int8 ones,
 * pixels of a line whose windows hold no padding go together, for the weights to stay in registers.
 *
 * Taps in the padding are left out: sums start at what they add, which is in the scratch. Columns of y go one after the
 * other where their windows hold padding, so that it is the same for most pixels.
 */
#include "arch/rvv/conv_rvv.h"

#ifdef NMP_RVV

#include "conv/patch.h"

/* The taps of a window that are pixels. */
typedef struct window {
  const uint8_t *x, *w;  /* the first one, of channel 0 */
  int32_t rows, columns; /* may be none */
  int32_t top, left;     /* taps above and left of them */
  size_t pixel, line;    /* bytes from tap to tap of x */
  size_t tap, kernel;    /* of w */
  const void *start;     /* sums of all channels, as wide as they are; NULL: zeros */
  void *sums;            /* where sums go as they are; NULL: they go to y */
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

#define PIXEL_32(name, X, W, PRODUCT)                                                                     \
  static void name(const nmp_conv *c, const window *at, size_t pixel) {                                   \
    const int32_t *start = (const int32_t *)at->start;                                                    \
    int32_t *sums = (int32_t *)at->sums;                                                                  \
    for (size_t channel = 0, vl; channel < c->out; channel += vl) {                                       \
      vl = __riscv_vsetvl_e32m4(c->out - channel);                                                        \
      vint32m4_t sum = start ? __riscv_vle32_v_i32m4(start + channel, vl) : __riscv_vmv_v_x_i32m4(0, vl); \
      EACH_TAP(X, W, sum = PRODUCT;)                                                                      \
      if (sums) {                                                                                         \
        __riscv_vse32_v_i32m4(sums + channel, sum, vl);                                                   \
      } else {                                                                                            \
        nmp_rvv_end_32(c, output(c, pixel, channel), sum, channel, vl);                                   \
      }                                                                                                   \
    }                                                                                                     \
  }
#define PRODUCT_8X8 \
  __riscv_vwadd_wv_i32m4(sum, __riscv_vwmul_vv_i16m2(__riscv_vle8_v_i8m1(xs, vl), __riscv_vle8_v_i8m1(ws, vl), vl), vl)

PIXEL_32(pixel_32_8x8, int8_t, int8_t, PRODUCT_8X8)
PIXEL_32(pixel_32_8x16, int8_t, int16_t, __riscv_vwmacc_vv_i32m4(sum, LOAD_8_M2(xs), LOAD_16_M2(ws), vl))
PIXEL_32(pixel_32_16x8, int16_t, int8_t, __riscv_vwmacc_vv_i32m4(sum, LOAD_16_M2(xs), LOAD_8_M2(ws), vl))
PIXEL_32(pixel_32_16x16, int16_t, int16_t, __riscv_vwmacc_vv_i32m4(sum, LOAD_16_M2(xs), LOAD_16_M2(ws), vl))

#define PIXEL_64(name, X, W, LOAD_X, LOAD_W)                                                                     \
  static void name(const nmp_conv *c, const window *at, size_t pixel) {                                          \
    const int64_t *start = (const int64_t *)at->start;                                                           \
    int64_t *sums = (int64_t *)at->sums;                                                                         \
    for (size_t channel = 0, vl; channel < c->out; channel += vl) {                                              \
      vl = __riscv_vsetvl_e64m4(c->out - channel);                                                               \
      vint64m4_t sum = start ? __riscv_vle64_v_i64m4(start + channel, vl) : __riscv_vmv_v_x_i64m4(0, vl);        \
      EACH_TAP(X, W, sum = __riscv_vwadd_wv_i64m4(sum, __riscv_vwmul_vv_i32m2(LOAD_X(xs), LOAD_W(ws), vl), vl);) \
      if (sums) {                                                                                                \
        __riscv_vse64_v_i64m4(sums + channel, sum, vl);                                                          \
      } else {                                                                                                   \
        nmp_rvv_end_64(c, output(c, pixel, channel), sum, channel, vl);                                          \
      }                                                                                                          \
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

static window window_of(const nmp_conv *c, nmp_place at) {
  const size_t element = (size_t)1 << c->x_wide, tap = (size_t)c->out << c->w_wide;
  window w = {.pixel = (size_t)c->h.dilation * c->in * element,
              .line = (size_t)c->v.dilation * (size_t)c->h.in * c->in * element,
              .tap = tap,
              .kernel = tap * (size_t)c->h.kernel};
  int32_t top, bottom, left, right;
  nmp_clip(&c->v, at.y, &top, &bottom);
  nmp_clip(&c->h, at.x, &left, &right);
  if (bottom > top && right > left) {
    w.top = top;
    w.left = left;
    w.rows = bottom - top;
    w.columns = right - left;
    w.x = nmp_element(c, at, nmp_pixel(&c->v, at.y, top), nmp_pixel(&c->h, at.x, left), 0);
    w.w = nmp_rvv_weights(c) + (size_t)(top * c->h.kernel + left) * tap;
  }
  return w;
}

/* The sums in the scratch: what the taps of a window add that are padding: above, below, left, right of its pixels. */
static void add_padding(const nmp_conv *c, pixel_fn *compute, const window *at) {
  const int32_t top = at->top, bottom = top + at->rows, left = at->left, right = left + at->columns;
  const int32_t rows = c->v.kernel, columns = c->h.kernel;
  const int32_t areas[][4] = {
      {0, top, 0, columns}, {bottom, rows, 0, columns}, {top, bottom, 0, left}, {top, bottom, right, columns}};
  window area = *at;
  area.x = c->pad;
  area.pixel = area.line = 0;
  area.sums = c->scratch;
  for (size_t i = 0; i < sizeof(areas) / sizeof(*areas); i++) {
    area.rows = areas[i][1] - areas[i][0];
    area.columns = areas[i][3] - areas[i][2];
    area.w = nmp_rvv_weights(c) + (size_t)(areas[i][0] * columns + areas[i][2]) * at->tap;
    if (area.rows > 0 && area.columns > 0) {
      compute(c, &area, 0);
      area.start = area.sums;
    }
  }
}

/* Columns [from, to) of rows [first, last) of all images, whose windows have the same columns inside. */
static void run_columns(const nmp_conv *c, pixel_fn *compute, int32_t from, int32_t to, size_t first, size_t last) {
  const int three = c->v.kernel == 3 && c->h.kernel == 3 && compute == pixel_32_8x8;
  const size_t width = (size_t)c->h.out, step = (size_t)c->h.stride * c->in << c->x_wide;
  int32_t top = -1, rows = -1;
  for (size_t row = first; row < last; row++) {
    window at = window_of(c, nmp_locate(c, row * width + (size_t)from));
    size_t pixel = row * width + (size_t)from;
    if (three && at.rows == 3 && at.columns == 3) {
      line_of_three(c, &at, pixel, (size_t)(to - from));
      continue;
    }
    if (c->pad && (uint32_t)(at.rows * at.columns) < c->k) {
      if (at.top != top || at.rows != rows) { /* windows of the rows before have others inside */
        top = at.top;
        rows = at.rows;
        add_padding(c, compute, &at);
      }
      at.start = c->scratch;
    }
    for (const size_t end = pixel + (size_t)(to - from); pixel < end; pixel++, at.x += step) {
      compute(c, &at, pixel);
    }
  }
}

static void rvv_depthwise_run(const nmp_conv *c, size_t task, size_t of) {
  static pixel_fn *const table[2][2][2] = {
      {{pixel_32_8x8, pixel_32_8x16}, {pixel_32_16x8, pixel_32_16x16}},
      {{NULL, pixel_64_8x16}, {pixel_64_16x8, pixel_64_16x16}},
  };
  const nmp_rvv_head *head = c->packed;
  pixel_fn *compute = table[head->sums != NMP_RVV_32][c->x_wide][c->w_wide];
  const size_t rows = (size_t)c->images * (size_t)c->v.out;
  const int32_t whole = (c->h.in - 1 - (c->h.kernel - 1) * c->h.dilation + c->h.before) / c->h.stride + 1;
  for (int32_t x = 0, end; x < c->h.out; x = end) {
    int32_t left, right;
    nmp_clip(&c->h, x, &left, &right);
    end = right - left < c->h.kernel ? x + 1 : whole < c->h.out ? whole : c->h.out;
    run_columns(c, compute, x, end, rows * task / of, rows * (task + 1) / of);
  }
}

static size_t rvv_depthwise_tasks(const nmp_conv *c, size_t threads) {
  const size_t rows = (size_t)c->images * (size_t)c->v.out, pixels = (nmp_conv_pixels(c) + 31) / 32;
  const size_t most = pixels < rows ? pixels : rows;
  return threads < most ? threads : most;
}

static size_t rvv_depthwise_scratch(const nmp_conv *c) {
  return c->pad ? c->out * sizeof(int64_t) : 0;
}

const nmp_conv_kernel *nmp_conv_rvv_depthwise(const nmp_conv *c) {
  static const nmp_conv_kernel depthwise = {.packed = nmp_conv_rvv_packed,
                                            .pack = nmp_conv_rvv_pack,
                                            .scratch = rvv_depthwise_scratch,
                                            .tasks = rvv_depthwise_tasks,
                                            .run = rvv_depthwise_run};
  return nmp_conv_rvv_ends(c, 31) ? &depthwise : NULL;
}

#endif
