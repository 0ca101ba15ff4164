/* Depthwise convolutions with kernels of three rows: four channels of int8 x int8 at a time, or two of int16 x any.
 *
 * A word holds one pixel of those channels. A column of three pixels is expanded to six words of int16: rows 0 and 1 as
 * a pair for each channel, and row 2 of two channels each; or to three words where it is int16 already. So SMLAD adds
 * two taps of a channel, and neighbouring outputs share what was expanded. Columns of a part of a row are in the
 * scratch, weights behind them: in the same order, or as lanes where three columns go channel by channel.
 */
#include "arch/cortex_m/conv_dsp.h"

#ifdef NMP_DSP

#define COLUMN 6                             /* words of an expanded column of int8 */
#define COLUMN_WIDE 3                        /* of int16 */
#define COLUMN_WORDS 108                     /* of all that are expanded at a time */
#define ROW_MOST (COLUMN_WORDS / COLUMN - 2) /* outputs of a kernel of three columns in a part of a row */

/* A channel of `THREE_COLUMNS`, which loads it to r0..r8. */
typedef struct lane {
  const uint32_t *x, *end; /* rows 0 and 1 of the first column, and of the one behind the last */
  size_t y_step;
  uint32_t pairs[3]; /* weights of rows 0 and 1 by columns */
  uint32_t last01;   /* of row 2 in columns 0 and 1 */
  uint32_t last2;    /* in column 2, above the shift */
  int32_t start;
} lane;

typedef struct quad {
  uint32_t columns[COLUMN_WORDS];
  union {
    uint32_t weights[NMP_DSP_KERNEL_MAX * COLUMN]; /* columns of the kernel */
    lane lanes[4];
  } of;
  int quick; /* of lanes: three columns that neighbouring outputs share, with ends of bytes */
  uint32_t room[(NMP_DSP_ENDS_BYTES(4) + 3) / 4];
  ends e;
} quad;

typedef char quad_fits[sizeof(quad) <= NMP_DSP_THREE_ROWS_BYTES ? 1 : -1];
typedef char quad_fills[!NMP_CONV_RANGES || sizeof(quad) > NMP_DSP_THREE_ROWS_BYTES - 16 ? 1 : -1];

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

/* n > 0 columns of three rows that are `below` bytes apart, 15 instructions each. */
static void expand_inside(uint32_t *to, const uint8_t *x, size_t below, size_t step, size_t n) {
  __asm__ volatile(
      "1: ldr r0, [%[x]]\n"
      "ldr r1, [%[x], %[below]]\n"
      "ldr r5, [%[x], %[below], lsl #1]\n"
      "add %[x], %[step]\n"
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
      : [to] "+&r"(to), [x] "+&r"(x), [n] "+&r"(n)
      : [below] "r"(below), [step] "r"(step)
      : "r0", "r1", "r2", "r3", "r4", "r5", "cc", "memory");
}

/* n > 0 columns of int16, 9 instructions each. */
static void expand_inside_wide(uint32_t *to, const uint8_t *x, size_t below, size_t step, size_t n) {
  __asm__ volatile(
      "1: ldr r0, [%[x]]\n"
      "ldr r1, [%[x], %[below]]\n"
      "ldr r4, [%[x], %[below], lsl #1]\n"
      "add %[x], %[step]\n"
      "pkhbt r2, r0, r1, lsl #16\n"
      "pkhtb r3, r1, r0, asr #16\n"
      "stmia %[to]!, {r2-r4}\n"
      "subs %[n], #1\n"
      "bne 1b\n"
      : [to] "+&r"(to), [x] "+&r"(x), [n] "+&r"(n)
      : [below] "r"(below), [step] "r"(step)
      : "r0", "r1", "r2", "r3", "r4", "cc", "memory");
}

/* The weights of rows 0 and 1 in a column, as a pair. at: that of row 0. */
static inline uint32_t pair_at(const nmp_conv *c, size_t at) {
  return dsp_low(dsp_weight(c, at), dsp_weight(c, at + 3));
}

static __attribute__((noinline, cold)) void load_lanes(const nmp_conv *c, size_t channel, quad *q) {
  for (size_t i = 0, at = channel * 9; i < 4; i++, at += 9) {
    lane *const to = &q->of.lanes[i];
    to->y_step = q->e.mode == INT8 ? c->out : 4; /* see clipped_row */
    for (size_t kx = 0; kx < 3; kx++) {
      to->pairs[kx] = pair_at(c, at + kx);
    }
    to->last01 = dsp_low(dsp_weight(c, at + 6), dsp_weight(c, at + 7));
    to->last2 = dsp_low(q->e.shift[i], dsp_weight(c, at + 8));
    to->start = q->e.start[i];
  }
}

static inline int is_quick(const nmp_conv *c, const quad *q) {
  return !nmp_x_wide(c) && q->quick; /* not even code of it where all is wide */
}

static void load_weights(const nmp_conv *c, size_t channel, quad *q) {
  const size_t kernel = (size_t)c->h.kernel, lanes = nmp_x_wide(c) ? 2 : 4, bits = nmp_x_wide(c) ? 16 : 8;
  uint32_t *to = q->of.weights;
  nmp_conv_dsp_prepare(c, channel, lanes, !nmp_x_wide(c), q->room, &q->e);
  q->quick = q->e.bytes && kernel == 3 && c->h.stride <= 2;
  if (is_quick(c, q)) {
    load_lanes(c, channel, q);
    return;
  }
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

/* Three columns: a channel at a time along a row, with its weights in registers, so that a column is loaded once for
 * all outputs that it is under. r0 to r8: `lane`; r9 and r10: sums; r11: rows 0 and 1 of a column; r12: row 2, in its
 * lower half (h is "b") or upper half ("t"), `at` bytes behind; lr: y. 14 instructions and 15.5 cycles on a Cortex-M4
 * for the 9 products and the end of an output where the stride is 1, 16 and 19 where it is 2. Sums take turns, for
 * a Cortex-M7 adds to two of them at once.
 */
#define LOAD_COLUMN(at) "ldr r12, [r0, #" at "]\n ldr r11, [r0], #24\n"
#define PAIR_0(sum) "smlad " sum ", r11, r3, r8\n"
#define LAST_0(h, sum) "smla" h "b " sum ", r12, r6, " sum "\n"
#define PAIR_1(sum) "smlad " sum ", r11, r4, " sum "\n"
#define LAST_1(h, sum) "smla" h "t " sum ", r12, r6, " sum "\n"
#define PAIR_2(sum, from) "smlad " sum ", r11, r5, " from "\n"
#define LAST_2(h, sum) "smla" h "t " sum ", r12, r7, " sum "\n"
#define PUT(sum) "asr " sum ", " sum ", r7\n ssat " sum ", #8, " sum "\n strb " sum ", [lr]\n add lr, r2\n"
#define OUTPUT(h, at, done, next) \
  LOAD_COLUMN(at)                 \
  PAIR_2(done, done) PAIR_1(next) LAST_2(h, done) LAST_1(h, next) PUT(done) PAIR_0(done) LAST_0(h, done) "cmp r0, " \
                                                                                                         "r1\n"
/* The first sum, r9, has column 0. */
#define ALONG_1(h, at) \
  LOAD_COLUMN(at)      \
  PAIR_1("r9") PAIR_0("r10") LAST_1(h, "r9") LAST_0(h, "r10")  \
  "2:\n" OUTPUT(h, at, "r9", "r10")                            \
  "beq 3f\n" OUTPUT(h, at, "r10", "r9")                        \
  "bne 2b\n"                                                   \
  "3:\n"
#define ALONG_2(h, at) \
  "2:\n" LOAD_COLUMN(at) PAIR_1("r9") LAST_1(h, "r9")                                       \
  LOAD_COLUMN(at) PAIR_2("r10", "r9") PAIR_0("r9") LAST_2(h, "r10") LAST_0(h, "r9") PUT("r10") \
  "cmp r0, r1\n"                                                                            \
  "bne 2b\n"
/* Two channels. On the stack: the next one, its y, the end of these two. */
#define TWO_LANES(h, at, ALONG) \
  "1: ldmia lr!, {r0-r8}\n"                                   \
  "str lr, [sp]\n"                                            \
  "ldr lr, [sp, #4]\n" LOAD_COLUMN(at)                        \
  "add r10, lr, #1\n"                                         \
  "str r10, [sp, #4]\n" PAIR_0("r9") LAST_0(h, "r9") ALONG(h, at) \
  "ldr lr, [sp]\n"                                            \
  "ldr r9, [sp, #8]\n"                                        \
  "cmp lr, r9\n"                                              \
  "bne 1b\n"
typedef void three_columns(const lane *lanes, uint8_t *y);
#define THREE_COLUMNS(name, ALONG)                                                               \
  static __attribute__((naked, noinline)) void name(__attribute__((unused)) const lane *lanes,   \
                                                    __attribute__((unused)) uint8_t *y) {        \
    __asm__ volatile(                                                                          \
        "push {r4-r11, lr}\n"                                                                  \
        "add r2, r0, #72\n"                                                                    \
        "mov lr, r0\n"                                                                         \
        "push {r0-r2}\n" TWO_LANES("b", "16", ALONG)                                           \
        "add r9, #72\n"                                                                        \
        "str r9, [sp, #8]\n" TWO_LANES("t", "8", ALONG)                                        \
        "add sp, #12\n"                                                                        \
        "pop {r4-r11, pc}\n"); \
  }

/* The outputs of a row, by strides. */
THREE_COLUMNS(outputs_1, ALONG_1)
THREE_COLUMNS(outputs_2, ALONG_2)

/* The outputs of a row up to `end`, clipped to c's range on the way to y, which may be slow memory. */
static __attribute__((noinline)) void clipped_row(const nmp_conv *c, const quad *q, three_columns *outputs, uint8_t *y,
                                                  const uint8_t *end) {
  const uint32_t lo = (uint8_t)c->lo * 0x01010101u, hi = (uint8_t)c->hi * 0x01010101u;
  uint32_t row[ROW_MOST];
  const uint32_t *at = row;
  outputs(q->of.lanes, (uint8_t *)row);
  for (; y < end; y += c->out, at++) {
    dsp_store(y, dsp_clip_bytes(*at, lo, hi));
  }
}

/* A pixel of any kernel and any ends. */
static void any_columns(const nmp_conv *c, const quad *q, const uint32_t *x, uint8_t *y) {
  const uint32_t *t = q->of.weights;
  int32_t p0 = q->e.start[0], p1 = q->e.start[1], p2 = q->e.start[2], p3 = q->e.start[3];
  for (int32_t kx = 0; kx < c->h.kernel; kx++) {
    __asm__ volatile(TAPS("%[a]", "%[b]", "%[c]", "%[d]")
                     : [a] "+r"(p0), [b] "+r"(p1), [c] "+r"(p2), [d] "+r"(p3), [x] "+r"(x), [t] "+r"(t)
                     :
                     : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
  }
  const int32_t sums[4] = {p0, p1, p2, p3};
  for (size_t i = 0; i < 4; i++, y += 1u << nmp_y_wide(c)) {
    end_narrow(c, &q->e, i, sums[i], 0, 0, 1, y, 0);
  }
}

/* Six products of two channels. Two pairs of registers are left for their sums, also where r7 and r9 are taken. */
#define TAPS_WIDE                   \
  "ldmia %[x]!, {r2, r3, r12}\n"    \
  "ldmia %[t]!, {r4, r5, lr}\n"     \
  "smlald %Q[a], %R[a], r2, r4\n"   \
  "smlald %Q[b], %R[b], r3, r5\n"   \
  "smlalbb %Q[a], %R[a], r12, lr\n" \
  "smlaltt %Q[b], %R[b], r12, lr\n"
#define ADD_WIDE(COLUMNS)                                               \
  __asm__ volatile(COLUMNS                                              \
                   : [a] "+r"(a), [b] "+r"(b), [x] "+r"(x), [t] "+r"(t) \
                   :                                                    \
                   : "r2", "r3", "r4", "r5", "r12", "lr", "memory")

/* Two channels of a pixel in int64. */
static void any_columns_wide(const nmp_conv *c, const quad *q, const uint32_t *x, uint8_t *y) {
  const uint32_t *t = q->of.weights;
  int64_t a = 0, b = 0;
  if (c->h.kernel == 3) {
    ADD_WIDE(TAPS_WIDE TAPS_WIDE TAPS_WIDE);
  } else {
    for (int32_t left = c->h.kernel; left > 0; left--) {
      ADD_WIDE(TAPS_WIDE);
    }
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

/* The outputs of a row, whose columns are in q, up to the address `end`. */
static __attribute__((noinline)) void any_row(const nmp_conv *c, const quad *q, uint8_t *y, const uint8_t *end) {
  const size_t words = nmp_x_wide(c) ? COLUMN_WIDE : COLUMN, x_step = (size_t)c->h.stride * words,
               y_step = (size_t)c->out << nmp_y_wide(c);
  for (const uint32_t *x = q->columns; y < end; x += x_step, y += y_step) {
    (nmp_x_wide(c) ? any_columns_wide : any_columns)(c, q, x, y);
  }
}

/* A segment in all rows of an image. Columns of padding are the same in all of them. */
static void run_segment(const nmp_conv *c, const segment *s, quad *q, size_t pixel) {
  const size_t words = nmp_x_wide(c) ? COLUMN_WIDE : COLUMN, width = (size_t)c->h.in * c->in << nmp_x_wide(c);
  const uint32_t pad = c->pad ? dsp_load(nmp_padding(c, q->e.first)) : 0;
  const uint8_t *pads[3] = {(const uint8_t *)&pad, (const uint8_t *)&pad, (const uint8_t *)&pad};
  const size_t still[3] = {0, 0, 0}, below = (size_t)c->v.dilation * width, step = (size_t)c->in << nmp_x_wide(c);
  const int clips = is_quick(c, q) && q->e.mode != INT8;
  uint32_t *const columns = q->columns + s->before * words;
  expand_columns(q->columns, pads, still, s->before, nmp_x_wide(c));
  expand_columns(columns + s->inside * words, pads, still, s->after, nmp_x_wide(c));
  for (size_t i = 0; i < 4 && is_quick(c, q); i++) {
    q->of.lanes[i].x = q->columns + i;
    q->of.lanes[i].end = q->columns + i + (s->before + s->inside + s->after) * words;
  }
  three_columns *const quick = !is_quick(c, q) ? NULL : c->h.stride == 1 ? outputs_1 : outputs_2;
  const size_t y_bytes = (size_t)s->n * c->out << nmp_y_wide(c), y_row = (size_t)c->h.out * c->out << nmp_y_wide(c);
  const int32_t last = s->inside > 0 ? c->v.in - 2 * c->v.dilation : 0; /* rows below are in the padding */
  const int32_t stride = c->v.stride;
  uint8_t *y = output(c, pixel + (size_t)s->ox, q->e.first);
  int32_t iy = -c->v.before;
  for (int32_t left = c->v.out; left > 0; left--, iy += stride, y += y_row) {
    if (iy >= 0 && iy < last) {
      (nmp_x_wide(c) ? expand_inside_wide : expand_inside)(columns, s->x + (size_t)iy * width, below, step, s->inside);
    } else {
      expand_edge(c, s, iy, &pad, columns);
    }
    if (clips) {
      clipped_row(c, q, quick, y, y + y_bytes);
    } else if (quick) {
      quick(q->of.lanes, y);
    } else {
      any_row(c, q, y, y + y_bytes);
    }
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
