/* Depthwise 3x3, channel by channel and line by line, with the nine weights in registers.
 *
 * 1. Stride 1: a column of three factors goes into the sums of the three windows that hold it. Columns of padding add
 *    nothing, so that the first and the last windows only have fewer of them.
 * 2. Other strides: window by window; those with padding at their sides one tap at a time.
 *
 * Lines of padding above or below have weights of zero. Sums of int8 products start at what their end adds to them;
 * those of int16 products are negated, in two words as in conv_rv32_blocks.c.
 */
#include "arch/rv32/conv_rv32.h"

#ifdef NMP_RV32

#define INLINE static inline __attribute__((always_inline))
#define TAPS NMP_RV32_TAPS

/* INT16_HEAVY: three products may be too much for an int32. */
enum kind { INT8, INT16, INT16_HEAVY };

typedef struct channel {
  int32_t w[TAPS];
  enum kind kind;
  int32_t start, lo, hi; /* start: of int8 sums, which only have to be shifted at their end */
  nmp_end_rv32 end;
} channel;

/* A line of output pixels, from `rows` of input pixels. */
typedef struct line {
  const uint8_t *rows[3];
  uint8_t *y;
  size_t pixel; /* bytes from pixel to pixel, of x and of y */
} line;

typedef struct sum {
  int32_t low, high;
} sum;

INLINE int32_t load(const uint8_t *x, enum kind kind) {
  return kind ? *(const int16_t *)(const void *)x : *(const int8_t *)x;
}

/* Three products more. They go to the low word at once where their sum is at most 65533 * 2^15. */
INLINE sum add(sum s, int32_t a, int32_t b, int32_t c, int32_t u, int32_t v, int32_t w, enum kind kind) {
  if (kind == INT8) {
    return (sum){s.low + a * u + b * v + c * w, 0};
  }
  if (kind == INT16_HEAVY) {
    const int32_t low = s.low - a * u;
    s = (sum){low & 0xFFFF, s.high + (low >> 16)};
    u = 0;
  }
  const int32_t low = s.low - a * u - b * v - c * w;
  return (sum){low & 0xFFFF, s.high + (low >> 16)};
}

INLINE void store(const channel *ch, uint8_t *y, sum s, enum kind kind) {
  const int32_t v = kind ? nmp_conv_rv32_end_16(ch->end, s.low, s.high) : s.low >> ch->end.shift;
  const int32_t clipped = v < ch->lo ? ch->lo : v > ch->hi ? ch->hi : v;
  if (kind) {
    *(int16_t *)(void *)y = (int16_t)clipped;
  } else {
    *(int8_t *)y = (int8_t)clipped;
  }
}

INLINE void run_slide(const nmp_axis *h, const channel *of, const line *l, enum kind kind) {
  const channel ch = *of;
  const uint8_t *r0 = l->rows[0], *r1 = l->rows[1], *r2 = l->rows[2];
  uint8_t *y = l->y;
  const size_t pixel = l->pixel;
  const sum none = {ch.start, 0};
  sum now = none, next = none;
  int32_t early = 2 - h->before; /* columns after which no window is complete */
  for (int32_t column = 0; column < h->in; column++, r0 += pixel, r1 += pixel, r2 += pixel) {
    const int32_t a = load(r0, kind), b = load(r1, kind), c = load(r2, kind);
    now = add(now, a, b, c, ch.w[2], ch.w[5], ch.w[8], kind);
    if (column >= early) {
      store(&ch, y, now, kind);
      y += pixel;
    }
    now = add(next, a, b, c, ch.w[1], ch.w[4], ch.w[7], kind);
    next = add(none, a, b, c, ch.w[0], ch.w[3], ch.w[6], kind);
  }
  if (h->after > 0) {
    store(&ch, y, now, kind);
  }
  if (h->after > 1) {
    store(&ch, y + pixel, next, kind);
  }
}

/* Output pixels [from, to), whose windows hold taps [left, right) of a line. */
INLINE void run_windows(const nmp_axis *h, const channel *of, const line *l, int32_t from, int32_t to, int32_t left,
                        int32_t right, enum kind kind) {
  const channel ch = *of;
  const size_t pixel = l->pixel, step = (size_t)h->stride * pixel;
  const size_t first = (size_t)nmp_pixel(h, from, left) * pixel;
  const uint8_t *r0 = l->rows[0] + first, *r1 = l->rows[1] + first, *r2 = l->rows[2] + first;
  uint8_t *y = l->y + (size_t)from * pixel;
  for (; from < to; from++, r0 += step, r1 += step, r2 += step, y += pixel) {
    sum s = {ch.start, 0};
    if (left == 0 && right == 3) {
      _Pragma("GCC unroll 3") for (size_t i = 0; i < 3; i++) {
        const size_t at = i * pixel;
        s = add(s, load(r0 + at, kind), load(r1 + at, kind), load(r2 + at, kind), ch.w[i], ch.w[3 + i], ch.w[6 + i],
                kind);
      }
    } else {
      for (int32_t i = left; i < right; i++) {
        const size_t at = (size_t)(i - left) * pixel;
        s = add(s, load(r0 + at, kind), load(r1 + at, kind), load(r2 + at, kind), of->w[i], of->w[3 + i], of->w[6 + i],
                kind);
      }
    }
    store(&ch, y, s, kind);
  }
}

INLINE void run_line(const nmp_axis *h, const channel *ch, const line *l, enum kind kind) {
  if (h->stride == 1 && h->in > 1 && h->before <= 2 && h->after <= 2 && h->out == h->in + h->before + h->after - 2) {
    run_slide(h, ch, l, kind);
    return;
  }
  for (int32_t x = 0, end; x < h->out; x = end) {
    int32_t left, right;
    nmp_clip(h, x, &left, &right);
    end = x + 1;
    if (left == 0 && right == 3) { /* the last window that is whole, too */
      const int32_t places = (h->in + h->before - 3) / h->stride + 1;
      end = places < h->out ? places : h->out;
    }
    run_windows(h, ch, l, x, end, left, right > left ? right : left, kind);
  }
}

static void run_line_8(const nmp_axis *h, const channel *ch, const line *l) {
  run_line(h, ch, l, INT8);
}

static void run_line_16(const nmp_axis *h, const channel *ch, const line *l) {
  run_line(h, ch, l, INT16);
}

static void run_line_heavy(const nmp_axis *h, const channel *ch, const line *l) {
  run_line(h, ch, l, INT16_HEAVY);
}

typedef void run_line_fn(const nmp_axis *h, const channel *ch, const line *l);

static int32_t weight(const nmp_conv *c, size_t channel, size_t tap) {
  const size_t at = channel * TAPS + tap;
  return c->w_wide ? ((const int16_t *)c->w)[at] : ((const int8_t *)c->w)[at];
}

static int32_t size_of(int32_t w) {
  return w < 0 ? -w : w;
}

static int is_light(const nmp_conv *c, size_t i) {
  for (size_t t = 0; t < 3; t++) {
    if (size_of(weight(c, i, t)) + size_of(weight(c, i, t + 3)) + size_of(weight(c, i, t + 6)) > 65533) {
      return 0;
    }
  }
  return 1;
}

static channel channel_of(const nmp_conv *c, size_t i) {
  channel ch;
  const int shift = nmp_conv_shift(c, i);
  const int32_t bias = nmp_conv_bias(c, i);
  ch.kind = !c->x_wide ? INT8 : is_light(c, i) ? INT16 : INT16_HEAVY;
  ch.end = c->x_wide ? nmp_conv_rv32_end(shift, bias) : (nmp_end_rv32){.shift = shift};
  ch.start = c->x_wide ? 0 : bias * (1 << shift) + (1 << (shift - 1));
  ch.lo = c->lo;
  ch.hi = c->hi;
  for (size_t t = 0; t < TAPS; t++) {
    ch.w[t] = weight(c, i, t);
  }
  return ch;
}

/* A line of output pixels of an image that starts at x. */
static void run_row(const nmp_conv *c, const channel *whole, const uint8_t *x, int32_t row, line *l) {
  channel ch = *whole;
  for (int32_t i = 0; i < 3; i++) {
    const int32_t y = nmp_pixel(&c->v, row, i), inside = nmp_inside(&c->v, y);
    l->rows[i] = x + (size_t)(inside ? y : 0) * (size_t)c->h.in * l->pixel;
    if (!inside) {
      ch.w[3 * i] = ch.w[3 * i + 1] = ch.w[3 * i + 2] = 0;
    }
  }
  static run_line_fn *const lines[] = {[INT8] = run_line_8, [INT16] = run_line_16, [INT16_HEAVY] = run_line_heavy};
  lines[ch.kind](&c->h, &ch, l);
}

static void run(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t pixel = (size_t)c->in << c->x_wide, image = (size_t)c->v.in * (size_t)c->h.in * pixel;
  (void)task;
  (void)tasks;
  for (size_t i = 0; i < c->out; i++) {
    const channel ch = channel_of(c, i);
    const uint8_t *x = (const uint8_t *)c->x + (i << c->x_wide);
    line l = {{NULL, NULL, NULL}, (uint8_t *)c->y + (i << c->y_wide), pixel};
    for (size_t n = 0; n < c->images; n++, x += image) {
      for (int32_t row = 0; row < c->v.out; row++, l.y += (size_t)c->h.out * pixel) {
        run_row(c, &ch, x, row, &l);
      }
    }
  }
}

const nmp_conv_kernel *nmp_conv_rv32_depthwise(const nmp_conv *c) {
  static const nmp_conv_kernel depthwise = {.run = run};
  return nmp_rv32_is_three_by_three(c) ? &depthwise : NULL;
}

#endif
