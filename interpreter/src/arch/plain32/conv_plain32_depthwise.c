/* Depthwise 3x3, channel by channel and line by line, with the nine weights in registers.
 *
 * 1. Stride 1: a column of three factors goes into the sums of the three windows that hold it.
 * 2. Stride 2, int8: every second column goes into the sums of two windows.
 * 3. Other strides: window by window; those with padding at their sides one tap at a time.
 *
 * Lines of padding above or below have weights of zero. What they add is in the sums from the start; what a column of
 * padding adds is known, too. It is the same in all lines with as many pixels above and below. Sums of int8 products
 * start at what their end adds to them; those of int16 products are negated, in two words as in conv_plain32_blocks.c.
 */
#include "arch/plain32/conv_plain32.h"
#include "conv/patch.h"

#ifdef NMP_PLAIN32

#define INLINE static inline __attribute__((always_inline))
#define TAPS NMP_PLAIN32_TAPS

/* INT16_HEAVY: three products may be too much for an int32. */
enum kind { INT8, INT16, INT16_HEAVY };

typedef struct sum {
  int32_t low, high;
} sum;

typedef struct channel {
  int32_t w[TAPS]; /* zero in lines of padding */
  enum kind kind;
  int32_t lo, hi;
  nmp_end_plain32 end;
  sum start;      /* what the end of int8 sums adds, so that they only have to be shifted then; lines of padding */
  sum columns[3]; /* what each column adds where it is padding */
  int32_t all[TAPS], all_start, pad; /* w and start where all lines are pixels; what padding holds */
} channel;

/* A line of output pixels, from `rows` of input pixels. */
typedef struct line {
  const nmp_axis *h;
  const channel *channel;
  const uint8_t *rows[3];
  uint8_t *y;
  size_t pixel; /* bytes from pixel to pixel, of x and of y */
} line;

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

INLINE sum plus(sum s, sum t, enum kind kind) {
  const int32_t low = s.low + t.low;
  return kind == INT8 ? (sum){low, 0} : (sum){low & 0xFFFF, s.high + t.high + (low >> 16)};
}

INLINE void store(const channel *ch, uint8_t *y, sum s, enum kind kind) {
  const int32_t v = kind ? nmp_conv_plain32_end_16(ch->end, s.low, s.high) : s.low >> ch->end.shift;
  const int32_t clipped = v < ch->lo ? ch->lo : v > ch->hi ? ch->hi : v;
  if (kind) {
    *(int16_t *)(void *)y = (int16_t)clipped;
  } else {
    *(int8_t *)y = (int8_t)clipped;
  }
}

INLINE void run_slide(const line *l, enum kind kind) {
  const channel ch = *l->channel;
  const uint8_t *r0 = l->rows[0], *r1 = l->rows[1], *r2 = l->rows[2];
  uint8_t *y = l->y;
  const size_t pixel = l->pixel;
  const int32_t columns = l->h->in, early = 2 - l->h->before; /* early: columns after which no window is complete */
  sum next = plus(ch.start, ch.columns[0], kind), now = plus(next, ch.columns[1], kind);
  for (int32_t column = 0; column < columns; column++, r0 += pixel, r1 += pixel, r2 += pixel) {
    const int32_t a = load(r0, kind), b = load(r1, kind), c = load(r2, kind);
    now = add(now, a, b, c, ch.w[2], ch.w[5], ch.w[8], kind);
    if (column >= early) {
      store(&ch, y, now, kind);
      y += pixel;
    }
    now = add(next, a, b, c, ch.w[1], ch.w[4], ch.w[7], kind);
    next = add(ch.start, a, b, c, ch.w[0], ch.w[3], ch.w[6], kind);
  }
  const sum *padding = l->channel->columns;
  if (l->h->after > 0) {
    store(&ch, y, plus(now, padding[2], kind), kind);
  }
  if (l->h->after > 1) {
    store(&ch, y + pixel, plus(plus(next, padding[1], kind), padding[2], kind), kind);
  }
}

/* A column of padding or none in front; behind, at most the last column of the last window is one. */
static int is_slide_by_two(const nmp_axis *h) {
  return h->stride == 2 && h->before <= 1 && 2 * h->out - 1 - h->before < h->in;
}

INLINE void run_slide_by_two(const line *l) {
  const channel ch = *l->channel;
  const size_t pixel = l->pixel;
  const int32_t whole = (l->h->in + l->h->before - 1) / 2, out = l->h->out;
  const uint8_t *r0 = l->rows[0], *r1 = l->rows[1], *r2 = l->rows[2];
  uint8_t *y = l->y;
  sum s = plus(ch.start, ch.columns[0], INT8);
  if (l->h->before == 0) {
    s = add(ch.start, load(r0, INT8), load(r1, INT8), load(r2, INT8), ch.w[0], ch.w[3], ch.w[6], INT8);
    r0 += pixel, r1 += pixel, r2 += pixel;
  }
  for (int32_t i = whole < out ? whole : out; i > 0; i--, y += pixel) {
    s = add(s, load(r0, INT8), load(r1, INT8), load(r2, INT8), ch.w[1], ch.w[4], ch.w[7], INT8);
    const int32_t a = load(r0 + pixel, INT8), b = load(r1 + pixel, INT8), c = load(r2 + pixel, INT8);
    store(&ch, y, add(s, a, b, c, ch.w[2], ch.w[5], ch.w[8], INT8), INT8);
    s = add(ch.start, a, b, c, ch.w[0], ch.w[3], ch.w[6], INT8);
    r0 += 2 * pixel, r1 += 2 * pixel, r2 += 2 * pixel;
  }
  if (whole < out) {
    s = add(s, load(r0, INT8), load(r1, INT8), load(r2, INT8), ch.w[1], ch.w[4], ch.w[7], INT8);
    store(&ch, y, plus(s, ch.columns[2], INT8), INT8);
  }
}

/* Output pixels [from, to), whose windows hold taps [left, right) of a line. */
INLINE void run_windows(const line *l, int32_t from, int32_t to, int32_t left, int32_t right, enum kind kind) {
  const channel *of = l->channel, ch = *of;
  const size_t pixel = l->pixel, step = (size_t)l->h->stride * pixel;
  const size_t first = (size_t)nmp_pixel(l->h, from, left) * pixel;
  const uint8_t *r0 = l->rows[0] + first, *r1 = l->rows[1] + first, *r2 = l->rows[2] + first;
  uint8_t *y = l->y + (size_t)from * pixel;
  sum start = ch.start;
  for (int32_t i = 0; i < 3 && right - left < 3; i++) {
    start = i < left || i >= right ? plus(start, of->columns[i], kind) : start;
  }
  for (; from < to; from++, r0 += step, r1 += step, r2 += step, y += pixel) {
    sum s = start;
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

INLINE void run_line(const line *l, enum kind kind) {
  const nmp_axis *h = l->h;
  if (h->stride == 1 && h->in > 1 && h->before <= 2 && h->after <= 2 && h->out == h->in + h->before + h->after - 2) {
    run_slide(l, kind);
    return;
  }
  if (kind == INT8 && is_slide_by_two(h)) {
    run_slide_by_two(l);
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
    run_windows(l, x, end, left, right, kind);
  }
}

static void run_line_8(const line *l) {
  run_line(l, INT8);
}

static void run_line_16(const line *l) {
  run_line(l, INT16);
}

static void run_line_heavy(const line *l) {
  run_line(l, INT16_HEAVY);
}

typedef void run_line_fn(const line *l);

static int32_t weight(const nmp_conv *c, size_t i, size_t tap) {
  const size_t at = i * TAPS + tap;
  return nmp_w_wide(c) ? ((const int16_t *)c->w)[at] : ((const int8_t *)c->w)[at];
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
  const int shift = nmp_conv_shift(c, i);
  const int32_t bias = nmp_conv_bias(c, i);
  channel ch;
  ch.kind = !nmp_x_wide(c) ? INT8 : is_light(c, i) ? INT16 : INT16_HEAVY;
  ch.lo = c->lo;
  ch.hi = c->hi;
  ch.end = nmp_x_wide(c) ? nmp_conv_plain32_end(shift, bias) : (nmp_end_plain32){.shift = shift};
  ch.columns[0] = ch.columns[1] = ch.columns[2] = (sum){0, 0};
  ch.all_start = nmp_x_wide(c) ? 0 : bias * (1 << shift) + (1 << (shift - 1));
  for (size_t t = 0; t < TAPS; t++) {
    ch.all[t] = weight(c, i, t);
  }
  ch.pad = c->pad ? load(nmp_padding(c, i), ch.kind) : 0;
  return ch;
}

/* Windows from now on have pixels in lines [top, bottom) and padding in the others. */
static void set_lines(channel *ch, int32_t top, int32_t bottom) {
  int32_t *w = ch->w;
  for (int32_t i = 0; i < 3; i++, w += 3) {
    const int inside = i >= top && i < bottom;
    w[0] = inside ? ch->all[3 * i] : 0;
    w[1] = inside ? ch->all[3 * i + 1] : 0;
    w[2] = inside ? ch->all[3 * i + 2] : 0;
  }
  ch->start = (sum){ch->all_start, 0};
  for (size_t i = 0; i < 3 && ch->pad; i++) {
    const int32_t a = ch->w[i], b = ch->w[3 + i], c = ch->w[6 + i], p = ch->pad;
    if (ch->kind == INT8) {
      const int32_t inside = (a + b + c) * p;
      ch->start.low += (ch->all[i] + ch->all[3 + i] + ch->all[6 + i]) * p - inside;
      ch->columns[i].low = inside;
      continue;
    }
    ch->start = add(ch->start, p, p, p, ch->all[i] - a, ch->all[3 + i] - b, ch->all[6 + i] - c, ch->kind);
    ch->columns[i] = add((sum){0, 0}, p, p, p, a, b, c, ch->kind);
  }
}

/* A channel of an image that starts at x. */
static void run_image(const nmp_conv *c, channel *ch, const uint8_t *x, line *l) {
  static run_line_fn *const lines[] = {[INT8] = run_line_8, [INT16] = run_line_16, [INT16_HEAVY] = run_line_heavy};
  const size_t below = (size_t)c->h.in * l->pixel;
  for (int32_t row = 0, top = -1, bottom = -1; row < c->v.out; row++, l->y += (size_t)c->h.out * l->pixel) {
    const int32_t y = nmp_pixel(&c->v, row, 0);
    int32_t first, last;
    nmp_clip(&c->v, row, &first, &last);
    if (first != top || last != bottom) {
      top = first;
      bottom = last;
      set_lines(ch, top, bottom);
    }
    for (int32_t i = 0; i < 3; i++) {
      l->rows[i] = i >= top && i < bottom ? x + (size_t)(y + i) * below : x;
    }
    lines[ch->kind](l);
  }
}

static void plain32_depthwise_run(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t pixel = (size_t)c->in << nmp_x_wide(c), image = (size_t)c->v.in * (size_t)c->h.in * pixel;
  (void)task;
  (void)tasks;
  for (size_t i = 0; i < c->out; i++) {
    channel ch = channel_of(c, i);
    const uint8_t *x = (const uint8_t *)c->x + (i << nmp_x_wide(c));
    line l = {.h = &c->h, .channel = &ch, .y = (uint8_t *)c->y + (i << nmp_y_wide(c)), .pixel = pixel};
    for (size_t n = 0; n < c->images; n++, x += image) {
      run_image(c, &ch, x, &l);
    }
  }
}

const nmp_conv_kernel *nmp_conv_plain32_depthwise(const nmp_conv *c) {
  static const nmp_conv_kernel depthwise = {.run = plain32_depthwise_run};
  return nmp_plain32_is_three_by_three(c) ? &depthwise : NULL;
}

#endif
