/* Depthwise convolutions with kernels of three rows: four channels of int8 x int8 at a time, or two of int16 x any.
 *
 * A word holds one pixel of those channels. A column of three pixels is expanded to six words of int16: rows 0 and 1 as
 * a pair for each channel, and row 2 of two channels each; or to three words where it is int16 already. So SMLAD adds
 * two taps of a channel, and neighbouring outputs share what was expanded. Columns of a part of a row are in the
 * scratch, weights in the same order behind them.
 */
#include "arch/cortex_m/conv_dsp.h"

#ifdef NMP_DSP

#define COLUMN 6         /* words of an expanded column of int8 */
#define COLUMN_WIDE 3    /* of int16 */
#define COLUMN_WORDS 108 /* of all that are expanded at a time */

typedef struct quad {
  uint32_t columns[COLUMN_WORDS];
  /* Starts, weights, shifts of four channels, with three columns their range; of two: weights. */
  uint32_t table[4 + NMP_DSP_KERNEL_MAX * COLUMN + 4];
  uint32_t room[(NMP_DSP_ENDS_BYTES(4) + 3) / 4];
  ends e;
} quad;

typedef char quad_fits[(sizeof(quad) + 15) / 16 * 16 == NMP_DSP_THREE_ROWS_BYTES ? 1 : -1];

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

static inline void expand_column_wide(uint32_t *to, uint32_t a, uint32_t b, uint32_t c) {
  to[0] = dsp_low(a, b);
  to[1] = dsp_high(a, b);
  to[2] = c;
}

/* n columns; rows advance by their steps. */
static void expand_columns(uint32_t *to, const uint8_t *const rows[3], const size_t steps[3], size_t n, int wide) {
  const uint8_t *a = rows[0], *b = rows[1], *c = rows[2];
  for (; n > 0; n--, a += steps[0], b += steps[1], c += steps[2]) {
    if (wide) {
      expand_column_wide(to, dsp_load(a), dsp_load(b), dsp_load(c));
      to += COLUMN_WIDE;
    } else {
      expand_column(to, dsp_load(a), dsp_load(b), dsp_load(c));
      to += COLUMN;
    }
  }
}

/* n > 0 columns of three rows, 15 instructions each. */
static void expand_inside(uint32_t *to, const uint8_t *a, const uint8_t *b, const uint8_t *c, size_t step, size_t n) {
  size_t at = 0;
  __asm__ volatile(
      "1: ldr r0, [%[a], %[at]]\n"
      "ldr r1, [%[b], %[at]]\n"
      "ldr r5, [%[c], %[at]]\n"
      "add %[at], %[step]\n"
      "pkhtb r3, r1, r0, asr #16\n"
      "pkhbt r1, r0, r1, lsl #16\n"
      "sxtb16 r0, r1\n"
      "sxtb16 r1, r1, ror #8\n"
      "sxtb16 r2, r3\n"
      "sxtb16 r3, r3, ror #8\n"
      "sxtb16 r4, r5\n"
      "sxtb16 r5, r5, ror #8\n"
      "stmia %[to]!, {r0-r5}\n"
      "subs %[n], #1\n"
      "bne 1b\n"
      : [to] "+r"(to), [at] "+r"(at), [n] "+r"(n)
      : [a] "r"(a), [b] "r"(b), [c] "r"(c), [step] "r"(step)
      : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
}

/* n > 0 columns of int16, 10 instructions each. */
static void expand_inside_wide(uint32_t *to, const uint8_t *a, const uint8_t *b, const uint8_t *c, size_t step,
                               size_t n) {
  size_t at = 0;
  __asm__ volatile(
      "1: ldr r0, [%[a], %[at]]\n"
      "ldr r1, [%[b], %[at]]\n"
      "ldr r4, [%[c], %[at]]\n"
      "add %[at], %[step]\n"
      "pkhbt r2, r0, r1, lsl #16\n"
      "pkhtb r3, r1, r0, asr #16\n"
      "stmia %[to]!, {r2-r4}\n"
      "subs %[n], #1\n"
      "bne 1b\n"
      : [to] "+r"(to), [at] "+r"(at), [n] "+r"(n)
      : [a] "r"(a), [b] "r"(b), [c] "r"(c), [step] "r"(step)
      : "r0", "r1", "r2", "r3", "r4", "cc", "memory");
}

static void load_weights(const nmp_conv *c, size_t channel, quad *q) {
  const size_t kernel = (size_t)c->h.kernel, lanes = nmp_x_wide(c) ? 2 : 4, bits = nmp_x_wide(c) ? 16 : 8;
  uint32_t *to = q->table + 4;
  for (size_t kx = 0; kx < kernel; kx++) {
    uint32_t rows[3] = {0, 0, 0};
    for (size_t i = lanes; i-- > 0;) {
      for (size_t ky = 0; ky < 3; ky++) {
        rows[ky] = rows[ky] << bits | (dsp_weight(c, (channel + i) * c->k + ky * kernel + kx) & ((1u << bits) - 1));
      }
    }
    if (nmp_x_wide(c)) {
      expand_column_wide(to, rows[0], rows[1], rows[2]);
      to += COLUMN_WIDE;
    } else {
      expand_column(to, rows[0], rows[1], rows[2]);
      to += COLUMN;
    }
  }
  nmp_conv_dsp_prepare(c, channel, lanes, !nmp_x_wide(c), q->room, &q->e);
  for (size_t i = 0; i < lanes && !nmp_x_wide(c); i++) {
    q->table[i] = (uint32_t)q->e.start[i];
    to[i] = q->e.shift[i];
  }
#if NMP_CONV_RANGES > 1
  if (kernel < NMP_DSP_KERNEL_MAX) {
    to[4] = q->e.lo;
    to[5] = q->e.hi;
  }
#endif
}

/* The products of a column of a kernel, whose weights are at t: 13 instructions for 12. */
#define TAPS(a, b, c, d)      \
  "ldmia %[x]!, {r0-r3}\n"    \
  "ldrd r4, r5, [%[t]], #8\n" \
  "smlad " a ", r0, r4, " a   \
  "\n"                        \
  "smlad " b ", r1, r5, " b   \
  "\n"                        \
  "ldrd r4, r5, [%[t]], #8\n" \
  "smlad " c ", r2, r4, " c   \
  "\n"                        \
  "smlad " d ", r3, r5, " d   \
  "\n"                        \
  "ldrd r0, r1, [%[x]], #8\n" \
  "ldrd r4, r5, [%[t]], #8\n" \
  "smlabb " a ", r0, r4, " a  \
  "\n"                        \
  "smlabb " b ", r1, r5, " b  \
  "\n"                        \
  "smlatt " c ", r0, r4, " c  \
  "\n"                        \
  "smlatt " d ", r1, r5, " d "\n"

/* The same as TAPS with all registers: 12 instructions in 24 cycles on a Cortex-M4. */
#define QUICK_TAPS                 \
  "ldmia r0!, {r2-r5}\n"           \
  "ldmia r1!, {r6, r7, r12, lr}\n" \
  "smlad r8, r2, r6, r8\n"         \
  "smlad r9, r3, r7, r9\n"         \
  "smlad r10, r4, r12, r10\n"      \
  "smlad r11, r5, lr, r11\n"       \
  "ldrd r2, r3, [r0], #8\n"        \
  "ldrd r6, r7, [r1], #8\n"        \
  "smlabb r8, r2, r6, r8\n"        \
  "smlabb r9, r3, r7, r9\n"        \
  "smlatt r10, r2, r6, r10\n"      \
  "smlatt r11, r3, r7, r11\n"

/* The outputs of a row up to `end`, of a kernel of three columns, with a table whose shifts are safe. x_step: bytes
 * from the columns of an output to those of the next one, less three columns.
 */
typedef void three_columns(const uint32_t *x, const uint32_t *table, uint8_t *y, size_t y_step, const uint8_t *end,
                           size_t x_step);
#define THREE_COLUMNS(name, SATURATE, CLIP)                                                              \
  static __attribute__((naked, noinline)) void name(                                                     \
      __attribute__((unused)) const uint32_t *x, __attribute__((unused)) const uint32_t *table,          \
      __attribute__((unused)) uint8_t *y, __attribute__((unused)) size_t y_step,                         \
      __attribute__((unused)) const uint8_t *end, __attribute__((unused)) size_t x_step) {               \
    __asm__ volatile(                                                                                  \
        "push {r1-r11, lr}\n"                                                                          \
        "1: ldmia r1!, {r8-r11}\n" QUICK_TAPS QUICK_TAPS QUICK_TAPS                                    \
        "ldmia r1!, {r2-r5}\n"                                                                         \
        "asr r8, r8, r2\n"                                                                             \
        "asr r9, r9, r3\n"                                                                             \
        "asr r10, r10, r4\n"                                                                           \
        "asr r11, r11, r5\n" SATURATE("r8") SATURATE("r9") SATURATE("r10") SATURATE("r11")             \
        "bfi r8, r9, #8, #8\n"                                                                         \
        "bfi r8, r10, #16, #8\n"                                                                       \
        "bfi r8, r11, #24, #8\n" CLIP                                                                  \
        "ldmia sp, {r1-r3}\n"                                                                          \
        "ldrd r4, r5, [sp, #48]\n"                                                                     \
        "str r8, [r2]\n"                                                                               \
        "add r2, r3\n"                                                                                 \
        "add r0, r5\n"                                                                                 \
        "str r2, [sp, #4]\n"                                                                           \
        "cmp r2, r4\n"                                                                                 \
        "blo 1b\n"                                                                                     \
        "add sp, #12\n"                                                                                \
        "pop {r4-r11, pc}\n"); \
  }
#define TO_INT8(r) "ssat " r ", #8, " r "\n"
#define TO_POSITIVE8(r) "usat " r ", #7, " r "\n"

THREE_COLUMNS(three_to_int8, TO_INT8, "")
THREE_COLUMNS(three_to_positive8, TO_POSITIVE8, "")
#if NMP_CONV_RANGES > 1
#define TO_RANGE                             \
  "ldrd r2, r3, [r1]\n" /* dsp_clip_bytes */ \
  "ssub8 r4, r8, r2\n"                       \
  "sel r8, r8, r2\n"                         \
  "ssub8 r4, r3, r8\n"                       \
  "sel r8, r8, r3\n"
THREE_COLUMNS(three_to_range, TO_INT8, TO_RANGE)
#undef TO_RANGE
#endif

/* A pixel of any kernel and any ends. */
static void any_columns(const nmp_conv *c, const quad *q, const uint32_t *x, uint8_t *y) {
  const uint32_t *t = q->table + 4;
  int32_t p0 = q->e.start[0], p1 = q->e.start[1], p2 = q->e.start[2], p3 = q->e.start[3];
  for (int32_t kx = 0; kx < c->h.kernel; kx++) {
    __asm__ volatile(TAPS("%[a]", "%[b]", "%[c]", "%[d]")
                     : [a] "+r"(p0), [b] "+r"(p1), [c] "+r"(p2), [d] "+r"(p3), [x] "+r"(x), [t] "+r"(t)
                     :
                     : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
  }
  const size_t size = 1u << nmp_y_wide(c);
  end_narrow(c, &q->e, 0, p0, 0, 0, 1, y, 0);
  end_narrow(c, &q->e, 1, p1, 0, 0, 1, y + size, 0);
  end_narrow(c, &q->e, 2, p2, 0, 0, 1, y + 2 * size, 0);
  end_narrow(c, &q->e, 3, p3, 0, 0, 1, y + 3 * size, 0);
}

/* The same of two channels in int64. */
static void any_columns_wide(const nmp_conv *c, const quad *q, const uint32_t *x, uint8_t *y) {
  const uint32_t *t = q->table + 4;
  int64_t a = 0, b = 0;
  for (int32_t kx = 0; kx < c->h.kernel; kx++) {
    __asm__ volatile(
        "ldmia %[x]!, {r0-r2}\n"
        "ldmia %[t]!, {r3-r5}\n"
        "smlald %Q[a], %R[a], r0, r3\n"
        "smlald %Q[b], %R[b], r1, r4\n"
        "smlalbb %Q[a], %R[a], r2, r5\n"
        "smlaltt %Q[b], %R[b], r2, r5\n"
        : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [t] "+r"(t)
        :
        : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
  }
  end_wide(c, &q->e, 0, a, 0, 1, y, 0);
  end_wide(c, &q->e, 1, b, 0, 1, y + (1u << nmp_y_wide(c)), 0);
}

/* A part of all rows: outputs from column ox on, and the columns under them, of which some are padding. */
typedef struct segment {
  int32_t ox, n;
  size_t before, inside, after;
  const uint8_t *x; /* channel `first` of the first column that is not padding, in row 0 */
} segment;

static segment part(const nmp_conv *c, size_t image, int32_t ox, int32_t most, size_t channel) {
  segment s;
  s.ox = ox;
  s.n = c->h.out - ox < most ? c->h.out - ox : most;
  const int32_t first = nmp_pixel(&c->h, ox, 0), columns = (s.n - 1) * c->h.stride + c->h.kernel;
  const int32_t left = first >= 0 ? 0 : -first < columns ? -first : columns;
  const int32_t right = first + columns < c->h.in ? columns : c->h.in - first, inside = right > left ? right - left : 0;
  s.before = (size_t)left;
  s.inside = (size_t)inside;
  s.after = (size_t)(columns - left - inside);
  s.x = nmp_element(c, (nmp_place){0, 0, image}, 0, inside ? first + left : 0, channel);
  return s;
}

/* Columns of a row that partly lies in the padding, from `pad`. */
static void expand_edge(const nmp_conv *c, const segment *s, int32_t iy, const uint32_t *pad, uint32_t *to) {
  const uint8_t *rows[3];
  size_t steps[3];
  for (int32_t ky = 0; ky < 3; ky++, iy += c->v.dilation) {
    const int there = nmp_inside(&c->v, iy);
    rows[ky] = there ? s->x + ((size_t)iy * (size_t)c->h.in * c->in << nmp_x_wide(c)) : (const uint8_t *)pad;
    steps[ky] = there ? (size_t)c->in << nmp_x_wide(c) : 0;
  }
  expand_columns(to, rows, steps, s->inside, nmp_x_wide(c));
}

/* The outputs of a row, whose columns are at x, up to the address `end`. */
static inline void run_row(const nmp_conv *c, const quad *q, enum mode mode, const uint32_t *x, uint8_t *y,
                           const uint8_t *end) {
  const size_t words = nmp_x_wide(c) ? COLUMN_WIDE : COLUMN, x_step = (size_t)c->h.stride * words,
               y_step = (size_t)c->out << nmp_y_wide(c);
  if (nmp_x_wide(c)) {
    for (; y < end; x += x_step, y += y_step) {
      any_columns_wide(c, q, x, y);
    }
  } else if (mode <= RANGE8) {
#if NMP_CONV_RANGES > 1
    three_columns *const run = mode == RANGE8 ? three_to_range : mode == POSITIVE8 ? three_to_positive8 : three_to_int8;
#else
    three_columns *const run = mode == POSITIVE8 ? three_to_positive8 : three_to_int8;
#endif
    run(x, q->table, y, y_step, end, (x_step - 3 * COLUMN) * sizeof(uint32_t));
  } else {
    for (; y < end; x += x_step, y += y_step) {
      any_columns(c, q, x, y);
    }
  }
}

/* A segment in all rows of an image. Columns of padding are the same in all of them. */
static void run_segment(const nmp_conv *c, const segment *s, quad *q, size_t pixel) {
  const size_t words = nmp_x_wide(c) ? COLUMN_WIDE : COLUMN, width = (size_t)c->h.in * c->in << nmp_x_wide(c);
  const uint32_t pad = c->pad ? dsp_load(nmp_padding(c, q->e.first)) : 0;
  const uint8_t *pads[3] = {(const uint8_t *)&pad, (const uint8_t *)&pad, (const uint8_t *)&pad};
  const size_t still[3] = {0, 0, 0}, below = (size_t)c->v.dilation * width, step = (size_t)c->in << nmp_x_wide(c);
  const enum mode mode = q->e.bytes && !nmp_x_wide(c) && c->h.kernel == 3 ? q->e.mode : OTHER;
  uint32_t *const columns = q->columns + s->before * words;
  expand_columns(q->columns, pads, still, s->before, nmp_x_wide(c));
  expand_columns(columns + s->inside * words, pads, still, s->after, nmp_x_wide(c));
  for (int32_t oy = 0; oy < c->v.out; oy++, pixel += (size_t)c->h.out) {
    const int32_t iy = nmp_pixel(&c->v, oy, 0);
    uint8_t *y = output(c, pixel + (size_t)s->ox, q->e.first);
    if (iy >= 0 && iy + 2 * c->v.dilation < c->v.in && s->inside > 0) {
      const uint8_t *row = s->x + (size_t)iy * width;
      (nmp_x_wide(c) ? expand_inside_wide : expand_inside)(columns, row, row + below, row + 2 * below, step, s->inside);
    } else {
      expand_edge(c, s, iy, &pad, columns);
    }
    run_row(c, q, mode, q->columns, y, y + ((size_t)s->n * c->out << nmp_y_wide(c)));
  }
}

static void run_quad(const nmp_conv *c, size_t channel, quad *q) {
  const int32_t columns = COLUMN_WORDS / (nmp_x_wide(c) ? COLUMN_WIDE : COLUMN),
                most = (columns - c->h.kernel) / c->h.stride + 1;
  const size_t plane = (size_t)c->v.in * (size_t)c->h.in * c->in, outputs = (size_t)c->v.out * (size_t)c->h.out;
  load_weights(c, channel, q);
  for (uint32_t image = 0; image < c->images; image++) {
    for (int32_t ox = 0; ox < c->h.out; ox += most) {
      const segment s = part(c, image * plane, ox, most, channel);
      run_segment(c, &s, q, image * outputs);
    }
  }
}

/* The last channels overlap those before where they are no multiple. */
static void dsp_depthwise_run(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t lanes = nmp_x_wide(c) ? 2 : 4;
  (void)task;
  (void)tasks;
  for (size_t channel = 0; channel < c->out; channel += lanes) {
    run_quad(c, channel + lanes <= c->out ? channel : c->out - lanes, (quad *)c->scratch);
  }
}

const nmp_conv_kernel *nmp_conv_dsp_depthwise(const nmp_conv *c) {
  static const nmp_conv_kernel three_rows = {.scratch = nmp_dsp_three_rows_scratch, .run = dsp_depthwise_run};
  return nmp_dsp_is_three_rows(c) ? &three_rows : NULL;
}

#endif
