/* Depthwise convolution for one instruction set: included by conv_depthwise_<isa>.c, which defines the vectors.
 *
 * 1. The rows of x under the kernel are interleaved vertically, so that a lane of 32 bits holds the 4 (or 2) factors of
 *    one channel that a dot product takes (conv_depthwise_sums.h). Padding joins them there, so that from then on there
 *    are no edges, and a tap is a shift.
 * 2. Blocks of 4 vectors of lanes are summed up, tap by tap, for two rows of y at a time.
 *
 * A tile is what is interleaved at a time, so that it stays in the cache, in one of two shapes:
 *   - The pixels of a row lie one after the other: with few channels a row is one long vector, and weights are repeated
 *     until a block starts with channel 0 again. Tiles are bands of columns.
 *   - With many channels a block has those of one pixel, and tiles are strips of BLOCK channels.
 * Rows are read where they are in x, unless channels are repeated for a multiplier, or pixels are to be sorted by
 * column modulo the stride because vectors of lanes do not start with pixels.
 *
 * The bias (but with SPLIT) and the rounding start the accumulator. Where that does not fit 32 bits, pack() says so and
 * the portable kernel runs.
 *
 * Products are made in one of three ways, by the widths of x and w:
 *   QUADS  8 x 8: 4 taps; x + 128 is unsigned, what is too much is taken off at the start
 *   PAIRS  one of 8 bits: 2 taps in 16 bits
 *   SPLIT  16 x 16: w = 256 * high + low; floor((256 * H + L + r) / 2^s) = (H + (L >> 8) + r / 256) >> (s - 8)
 */
/* In this order. */
/* clang-format off */
#include "conv_depthwise_sums.h"
#include "conv_depthwise_plan.h"
/* clang-format on */

/* The value of padding in a channel of y. */
static int32_t padding(const nmp_conv *c, size_t channel) {
  const size_t at = channel / (c->out / c->in);
  return !c->pad ? 0 : c->x_wide ? ((const int16_t *)c->pad)[at] : ((const int8_t *)c->pad)[at];
}

static void fill_lanes(const nmp_conv *c, const plan *p, uint32_t *lanes) {
  for (size_t i = 0; i < c->out; i++) {
    const uint32_t value = (uint32_t)padding(c, i);
    lanes[i] = p->mode == QUADS ? ((value & 0xff) ^ 0x80) * 0x01010101u : (value & 0xffff) * 0x10001u;
  }
  memset(lanes + c->out, 0, BLOCK * 4);
}

static void fill_pixels(const nmp_conv *c, uint8_t *to, size_t pixels) {
  if (c->pad == NULL) {
    memset(to, 0, pixels * c->out << c->x_wide);
    return;
  }
  for (size_t i = 0; i < c->out; i++) {
    const int32_t value = padding(c, i);
    for (size_t k = 0; k < pixels; k++) {
      if (c->x_wide) {
        ((int16_t *)(void *)to)[k * c->out + i] = (int16_t)value;
      } else {
        ((int8_t *)to)[k * c->out + i] = (int8_t)value;
      }
    }
  }
}

/* Columns [first, first + out) of y, and channels: what a task computes for all of its rows. */
typedef struct tile {
  size_t first, out, channel, channels;
  size_t columns, left, inside; /* pixels of a row with padding; of them padding at the left, and then in x */
  size_t pixel;                 /* of x, the first one */
  /* Of a band: blocks of a row, in each phase of the weights, phases with one more, the phase of the last block and
   * the elements of that one. */
  size_t blocks, each_phase, more_phases, last_phase, last;
  const int32_t *weights; /* of the first block */
  interleave_fn *interleave;
  sum_fn *const *sums;
} tile;

static tile tile_of(const nmp_conv *c, const plan *p, size_t i) {
  const size_t before = (size_t)c->h.before, in = (size_t)c->h.in;
  tile t;
  memset(&t, 0, sizeof(t));
  t.out = p->band;
  t.channels = c->out;
  t.weights = (const int32_t *)c->packed + HEADER / 4;
  if (p->strips) {
    t.channel = i * BLOCK;
    t.channels = c->out - t.channel < BLOCK ? c->out - t.channel : BLOCK;
    t.weights += i * block_lanes(p);
  } else {
    t.first = i * p->band;
    t.out = (size_t)c->h.out - t.first < p->band ? (size_t)c->h.out - t.first : p->band;
  }
  const size_t begin = t.first * (size_t)c->h.stride;
  t.columns = columns_of(c, t.out);
  t.left = before <= begin ? 0 : before - begin < t.columns ? before - begin : t.columns;
  t.pixel = t.left == t.columns || begin + t.left - before >= in ? 0 : begin + t.left - before;
  t.inside = t.left == t.columns || begin + t.left - before >= in ? 0 : in - t.pixel;
  t.inside = t.inside < t.columns - t.left ? t.inside : t.columns - t.left;
  t.blocks = (t.out * c->out + BLOCK - 1) / BLOCK;
  t.each_phase = t.blocks / p->period;
  t.more_phases = t.blocks % p->period;
  t.last_phase = (t.blocks - 1) % p->period;
  t.last = t.out * c->out - (t.blocks - 1) * BLOCK;
  t.interleave = p->mode == QUADS ? interleave_bytes : c->x_wide ? interleave_words : interleave_widened;
  t.sums = sums_of(p->mode, p->taps, c->y_wide);
  return t;
}

/* Where the pixel of a column is among the lanes, or the copied pixels, of a tile. */
static size_t place(const nmp_conv *c, const plan *p, size_t column) {
  const size_t stride = (size_t)c->h.stride;
  return p->sorted ? column % stride * ((p->columns + stride - 1) / stride) + column / stride : column;
}

/* A row of x with its padding, each channel as often as the multiplier says. x: NULL outside. */
static void copy_row(const nmp_conv *c, const plan *p, const tile *t, const uint8_t *x, const uint8_t *outside,
                     uint8_t *to) {
  const size_t times = c->out / c->in, bytes = t->channels * p->bytes, first = t->channel * p->bytes;
  for (size_t i = 0; i < t->columns; i++) {
    const int inside = x && i >= t->left && i < t->left + t->inside;
    const uint8_t *from = inside ? x + (t->pixel + i - t->left) * c->in * p->bytes : outside;
    uint8_t *pixel = to + place(c, p, i) * c->out * p->bytes;
    if (!inside || times == 1) {
      memcpy(pixel + first, from + first, bytes);
      continue;
    }
    for (size_t channel = t->channel; channel < t->channel + t->channels; channel++) {
      memcpy(pixel + channel * p->bytes, from + channel / times * p->bytes, p->bytes);
    }
  }
}

/* 1. The lanes of group g for output row oy. */
static void fill_group(const nmp_conv *c, const plan *p, const parts *at, const tile *t, const uint8_t *x, size_t oy,
                       size_t g, int32_t *to) {
  uint8_t *base = c->scratch;
  const size_t last = (size_t)c->v.kernel + p->together - 2, pixel = c->out * p->bytes;
  const size_t left = p->copied ? 0 : t->left, inside = p->copied ? p->pixels : t->inside;
  const int32_t *outside = (const int32_t *)(const void *)base;
  source s;
  s.lines = p->strips ? inside : 1;
  s.length = p->strips ? t->channels : inside * c->out;
  for (size_t i = 0; i < p->factors; i++) {
    const size_t tap = g * p->factors + i;
    const int32_t iy = nmp_pixel(&c->v, (int32_t)oy, (int32_t)(tap < last ? tap : last));
    const uint8_t *row = nmp_inside(&c->v, iy) ? x + (size_t)iy * (size_t)c->h.in * c->in * p->bytes : NULL;
    const uint8_t *pixels = row ? row + t->pixel * c->in * p->bytes : base + at->outside;
    if (p->copied) {
      pixels = base + at->copies + i * at->row;
      copy_row(c, p, t, row, base + at->outside, base + at->copies + i * at->row);
    }
    s.rows[i] = pixels + t->channel * p->bytes;
    s.steps[i] = row || p->copied ? pixel : 0;
  }
  for (size_t i = 0; i < left; i++) {
    copy_lanes(to + i * p->pitch, outside + t->channel, p->pitch);
  }
  t->interleave(to + left * p->pitch, &s, p->pitch);
  for (size_t i = left + inside; i < t->columns && !p->copied; i++) {
    copy_lanes(to + i * p->pitch, outside + t->channel, p->pitch);
  }
}

/* 2. A tile's blocks in one row of y or two; set: of weights, for the first one. */
static void sum_tile(const nmp_conv *c, const plan *p, const tile *t, size_t set, uint8_t *y0, uint8_t *y1, int rows,
                     span *s) {
  const size_t lanes = block_lanes(p), period = p->strips ? 1 : p->period, unit = p->sorted ? 1 : (size_t)c->h.stride;
  const int32_t *weights = t->weights + set * p->period * lanes;
  sum_fn *sum = t->sums[rows - 1];
  for (size_t b = 0; b < period && b < t->blocks; b++, weights += lanes) {
    s->weights[0] = weights;
    s->weights[1] = weights + p->period * lanes;
    for (size_t j = 0; j < 4 && !p->strips; j++) {
      const uint32_t e = (uint32_t)(b * BLOCK + j * LANES), pitch = (uint32_t)p->pitch;
      s->at[j] = unit == 1 ? e : e / pitch * unit * pitch + e % pitch;
    }
    if (!p->strips) {
      s->blocks = t->each_phase + (b < t->more_phases);
      s->last = b == t->last_phase ? t->last : BLOCK;
    }
    sum(s, y0 + (b * BLOCK << c->y_wide), y1 + (b * BLOCK << c->y_wide));
  }
}

/* What all rows of a tile have in common. */
static span span_of(const nmp_conv *c, const plan *p, const tile *t) {
  const size_t unit = p->sorted ? 1 : (size_t)c->h.stride;
  span s;
  s.taps = p->taps;
  s.advance = unit * (p->strips ? BLOCK : p->period * BLOCK);
  s.y_advance = (p->strips ? c->out : p->period * BLOCK) << c->y_wide;
  s.blocks = t->out;
  s.each = s.last = p->strips ? t->channels : BLOCK;
  s.lo = c->lo;
  s.hi = c->hi;
  for (size_t j = 0; j < 4; j++) {
    s.at[j] = j * LANES;
  }
  return s;
}

/* Rows [begin, last) of all images' rows, the first one at y. The lanes of a group serve the group before, when y's
 * rows are as many as a lane has factors: groups take turns.
 */
static void run_tile(const nmp_conv *c, const plan *p, const parts *at, size_t i, size_t begin, size_t last,
                     uint8_t *y) {
  const tile t = tile_of(c, p, i);
  const size_t kw = (size_t)c->h.kernel, pad = p->copied ? 0 : (size_t)c->h.before * p->pitch;
  const size_t row_bytes = (size_t)c->h.out * c->out << c->y_wide;
  int32_t *lanes = (int32_t *)(void *)((uint8_t *)c->scratch + at->lanes) + (LANES - pad % LANES) % LANES;
  span s = span_of(c, p, &t);
  size_t image = begin / (size_t)c->v.out, oy = begin % (size_t)c->v.out;
  y += (t.first * c->out + t.channel) << c->y_wide;
  for (size_t row = begin, n, turn = 0; row < last; row += n) {
    const size_t left = (size_t)c->v.out - oy, most = left < last - row ? left : last - row;
    const uint8_t *x = (const uint8_t *)c->x + image * (size_t)c->v.in * (size_t)c->h.in * c->in * p->bytes;
    const int kept = p->together == p->factors && row > begin && oy > 0;
    n = most < p->together ? most : p->together;
    for (size_t g = 0; g < p->groups; g++) {
      const size_t slot = turn + g < p->groups ? turn + g : turn + g - p->groups;
      int32_t *to = lanes + slot * p->lanes;
      if (!kept || g + 1 == p->groups) {
        fill_group(c, p, at, &t, x, oy, g, to);
      }
      for (size_t k = 0; k < kw; k++) {
        s.x[g * kw + k] = to + place(c, p, k * (size_t)c->h.dilation) * p->pitch;
      }
    }
    for (size_t r = 0; r < n; r += 2) {
      uint8_t *to = y + r * row_bytes;
      sum_tile(c, p, &t, r, to, r + 1 < n ? to + row_bytes : to, r + 1 < n ? 2 : 1, &s);
    }
    y += n * row_bytes;
    turn = turn + 1 < p->groups ? turn + 1 : 0;
    oy += n;
    image += oy == (size_t)c->v.out;
    oy = oy == (size_t)c->v.out ? 0 : oy;
  }
}

static void run_rows(const nmp_conv *whole, size_t first, size_t last, uint8_t *y) {
  const header *h = (const header *)whole->packed;
  nmp_conv c = *whole;
  uint8_t *base = whole->scratch;
  base += (ALIGN - (uintptr_t)base % ALIGN) % ALIGN;
  c.scratch = base;
  fill_lanes(&c, &h->plan, (uint32_t *)(void *)base);
  fill_pixels(&c, base + h->parts.outside, h->plan.pixels);
  for (size_t i = 0; i < h->plan.tiles; i++) {
    run_tile(&c, &h->plan, &h->parts, i, first, last, y);
  }
}

/* pack() says that the portable kernel has to run. */
static int is_plain(const nmp_conv *c) {
  return ((const header *)c->packed)->plain;
}

#include "conv_depthwise_run.h"

static size_t tasks(const nmp_conv *c, size_t threads) {
  const size_t all = c->images * (size_t)c->v.out, worth = nmp_conv_pixels(c) * c->out * c->k / SHARE + 1;
  const size_t most = all < worth ? all : worth;
  return threads < most ? threads : most;
}

const nmp_conv_kernel *CHOOSE(const nmp_conv *c) {
  static const nmp_conv_kernel depthwise = {packed, pack, scratch, tasks, run, rows, 0};
  if (c->groups != c->in || (c->in == 1 && c->out > 1) || c->k > TAPS_MAX) {
    return NULL;
  }
  const plan p = plan_of(c);
  return parts_of(c, &p).end <= SCRATCH_MAX ? &depthwise : NULL;
}
