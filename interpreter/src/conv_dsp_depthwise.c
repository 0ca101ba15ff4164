/* Depthwise convolutions with kernels of three rows, int8 x int8: four channels at a time.
 *
 * A word holds one pixel of four channels. A column of three pixels is expanded to six words, for every channel rows 0
 * and 1 as a pair of int16 and, for two channels each, row 2. So SMLAD adds two taps of a channel, and neighbouring
 * outputs share what was expanded. Columns of a part of a row are in the scratch, weights in the same order before
 * them.
 */
#include "conv_dsp.h"

#ifdef NMP_DSP

#define COLUMN 6     /* words of an expanded column */
#define COLUMNS 18   /* that are expanded at a time */
#define KERNEL_MAX 8 /* columns of the kernel */

typedef struct quad {
  uint32_t columns[COLUMNS * COLUMN];
  uint32_t weights[KERNEL_MAX * COLUMN];
  uint32_t ends[(ENDS_BYTES(4) + 3) / 4];
  ends e;
} quad;

static size_t scratch(const nmp_conv *c) {
  (void)c;
  return (sizeof(quad) + 15) / 16 * 16;
}

/* Three words, a row each, to a column. */
static inline void expand_column(uint32_t *to, uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t first = dsp_low(a, b), last = dsp_high(a, b);
  to[0] = dsp_even(first);
  to[1] = dsp_odd(first);
  to[2] = dsp_even(last);
  to[3] = dsp_odd(last);
  to[4] = dsp_even(c);
  to[5] = dsp_odd(c);
}

/* n columns; rows advance by their steps. */
DSP_INLINE void expand_columns(uint32_t *to, const uint8_t *const rows[3], const size_t steps[3], size_t n) {
  const uint8_t *a = rows[0], *b = rows[1], *c = rows[2];
  for (; n > 0; n--, to += COLUMN, a += steps[0], b += steps[1], c += steps[2]) {
    expand_column(to, dsp_load(a), dsp_load(b), dsp_load(c));
  }
}

static void load_weights(const nmp_conv *c, size_t channel, quad *q) {
  const size_t kernel = (size_t)c->h.kernel;
  const uint8_t *w = (const uint8_t *)c->w + channel * c->k;
  for (size_t kx = 0; kx < kernel; kx++) {
    uint32_t rows[3] = {0, 0, 0};
    for (size_t i = 4; i-- > 0;) {
      for (size_t ky = 0; ky < 3; ky++) {
        rows[ky] = rows[ky] << 8 | w[i * c->k + ky * kernel + kx];
      }
    }
    expand_column(q->weights + kx * COLUMN, rows[0], rows[1], rows[2]);
  }
  nmp_conv_dsp_prepare(c, channel, 4, 1, q->ends, &q->e);
}

/* The columns under outputs of row oy from column `first` on, which may lie in the padding. */
static void load_columns(const nmp_conv *c, size_t image, int32_t oy, int32_t first, int32_t n, size_t channel,
                         quad *q) {
  const uint32_t pad = c->pad ? dsp_load((const uint8_t *)c->pad + channel) : 0;
  const uint8_t *rows[3], *outside[3];
  size_t steps[3];
  static const size_t still[3] = {0, 0, 0};
  const int32_t before = first < 0 ? (-first < n ? -first : n) : 0;
  const int32_t end = first + n > c->h.in ? (c->h.in > first ? c->h.in - first : 0) : n,
                inside = end > before ? end - before : 0;
  for (int32_t ky = 0; ky < 3; ky++) {
    const int32_t iy = nmp_pixel(&c->v, oy, ky);
    const int there = nmp_inside(&c->v, iy);
    outside[ky] = (const uint8_t *)&pad;
    rows[ky] = there ? (const uint8_t *)c->x + image +
                           ((size_t)iy * (size_t)c->h.in + (size_t)(first + before)) * c->in + channel
                     : outside[ky];
    steps[ky] = there ? c->in : 0;
  }
  expand_columns(q->columns, outside, still, (size_t)before);
  expand_columns(q->columns + before * COLUMN, rows, steps, (size_t)inside);
  expand_columns(q->columns + (before + inside) * COLUMN, outside, still, (size_t)(n - before - inside));
}

DSP_INLINE void multiply(int32_t sums[4], const uint32_t *x, const uint32_t *w, int kernel) {
  int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3];
  for (int kx = 0; kx < kernel; kx++) {
    __asm__ volatile(
        "ldmia %[x]!, {r0-r3}\n"
        "ldrd r4, r5, [%[w]], #8\n"
        "smlad %[a], r0, r4, %[a]\n"
        "smlad %[b], r1, r5, %[b]\n"
        "ldrd r4, r5, [%[w]], #8\n"
        "smlad %[c], r2, r4, %[c]\n"
        "smlad %[d], r3, r5, %[d]\n"
        "ldrd r0, r1, [%[x]], #8\n"
        "ldrd r4, r5, [%[w]], #8\n"
        "smlabb %[a], r0, r4, %[a]\n"
        "smlabb %[b], r1, r5, %[b]\n"
        "smlatt %[c], r0, r4, %[c]\n"
        "smlatt %[d], r1, r5, %[d]\n"
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x] "+r"(x), [w] "+r"(w)
        :
        : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
  }
  sums[0] = a;
  sums[1] = b;
  sums[2] = c;
  sums[3] = d;
}

/* Outputs [pixel, pixel + n) of the quad, whose columns lie `stride` apart. */
static void run_outputs(const nmp_conv *c, const quad *q, size_t pixel, size_t n) {
  const size_t step = (size_t)c->h.stride * COLUMN, y_step = (size_t)c->out << c->y_wide;
  const int32_t *start = q->e.start;
  const uint8_t *shift = q->e.shift;
  const int simple = shift[0] && shift[1] && shift[2] && shift[3];
  const int signed8 = simple && q->e.mode == INT8, positive8 = simple && q->e.mode == POSITIVE8;
  const uint32_t *x = q->columns;
  uint8_t *y = output(c, pixel, q->e.first);
  for (; n > 0; n--, x += step, y += y_step) {
    int32_t sums[4] = {start[0], start[1], start[2], start[3]};
    if (c->h.kernel == 3) {
      multiply(sums, x, q->weights, 3);
    } else {
      multiply(sums, x, q->weights, c->h.kernel);
    }
    if (signed8) {
      dsp_store(y, dsp_bytes(dsp_int8(sums[0] >> shift[0]), dsp_int8(sums[1] >> shift[1]),
                             dsp_int8(sums[2] >> shift[2]), dsp_int8(sums[3] >> shift[3])));
    } else if (positive8) {
      dsp_store(y, dsp_bytes(dsp_positive8(sums[0] >> shift[0]), dsp_positive8(sums[1] >> shift[1]),
                             dsp_positive8(sums[2] >> shift[2]), dsp_positive8(sums[3] >> shift[3])));
    } else {
      for (size_t i = 0; i < 4; i++) {
        end_narrow(c, &q->e, i, &sums[i], 1, y + (i << c->y_wide), 0);
      }
    }
  }
}

static void run_quad(const nmp_conv *c, size_t channel, quad *q) {
  const int32_t most = (COLUMNS - c->h.kernel) / c->h.stride + 1;
  load_weights(c, channel, q);
  for (size_t row = 0; row < (size_t)c->images * (size_t)c->v.out; row++) {
    const size_t image = row / (size_t)c->v.out * (size_t)c->v.in * (size_t)c->h.in * c->in;
    const int32_t oy = (int32_t)(row % (size_t)c->v.out);
    for (int32_t ox = 0, n; ox < c->h.out; ox += n) {
      n = c->h.out - ox < most ? c->h.out - ox : most;
      load_columns(c, image, oy, nmp_pixel(&c->h, ox, 0), (n - 1) * c->h.stride + c->h.kernel, channel, q);
      run_outputs(c, q, row * (size_t)c->h.out + (size_t)ox, (size_t)n);
    }
  }
}

/* The last quad overlaps the one before where channels are not a multiple of four. */
static void run(const nmp_conv *c, size_t task, size_t tasks) {
  (void)task;
  (void)tasks;
  for (size_t channel = 0; channel < c->out; channel += 4) {
    run_quad(c, channel + 4 <= c->out ? channel : c->out - 4, (quad *)c->scratch);
  }
}

const nmp_conv_kernel *nmp_conv_dsp_depthwise(const nmp_conv *c) {
  static const nmp_conv_kernel three_rows = {NULL, NULL, scratch, NULL, run};
  const int fits = nmp_conv_is_depthwise(c) && c->out >= 4 && !c->x_wide && !c->w_wide;
  return fits && c->v.kernel == 3 && c->h.kernel <= KERNEL_MAX && c->h.dilation == 1 ? &three_rows : NULL;
}

#endif
