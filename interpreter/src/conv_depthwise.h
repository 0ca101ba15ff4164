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
 * The bias and the rounding start the accumulator. Where that does not fit 32 bits, pack() says so and the portable
 * kernel runs.
 *
 * Products are made in one of three ways, by the widths of x and w:
 *   QUADS  8 x 8: 4 taps; x + 128 is unsigned, what is too much is taken off at the start
 *   PAIRS  one of 8 bits: 2 taps in 16 bits
 *   SPLIT  16 x 16: w = 256 * high + low; floor((256 * H + L + r) / 2^s) = (H + (L >> 8) + r / 256) >> (s - 8)
 */
#include "conv_depthwise_sums.h"

#define PERIOD_MAX 4096       /* channels of all blocks with weights of their own, in a row that is one vector */
#define ALIGN 64              /* of the scratch: loads that cross lines of a cache cost twice */
#define SCRATCH_MAX (1 << 20) /* bytes of a task */
#define TILE_BYTES 24576      /* of lanes: half a first-level cache */
#define SHARE 400000          /* products that are worth a task */

typedef struct plan {
  int mode;
  size_t factors, groups;           /* rows in a lane; lanes for the rows of the kernel */
  size_t together;                  /* rows of y whose kernels the lanes have room for, one below the other */
  int strips;                       /* the tiles' shape */
  int copied, sorted;               /* rows of x, before they are interleaved */
  size_t pitch;                     /* lanes of a pixel */
  size_t period;                    /* blocks with weights of their own */
  size_t band;                      /* columns of y in a tile */
  size_t tiles, taps, reach, bytes; /* bytes of an element of x */
  size_t columns, lanes;            /* of a tile, at most: padded pixels of x; lanes of a group */
  size_t pixels;                    /* of a row that holds padding or a copy */
} plan;

static size_t columns_of(const nmp_conv *c, size_t out) {
  return (out - 1) * (size_t)c->h.stride + (size_t)((c->h.kernel - 1) * c->h.dilation) + 1;
}

/* Columns of y in a tile that is a band: as few tiles as fit, of equal size, which start with channel 0 of a block. */
static size_t band_of(const nmp_conv *c, const plan *p) {
  const size_t out = (size_t)c->h.out, unit = p->period * BLOCK / c->out;
  const size_t columns = TILE_BYTES / 4 / p->groups / c->out;
  const size_t most = columns > p->reach ? (columns - p->reach) / (size_t)c->h.stride : 0;
  const size_t tiles = most >= out ? 1 : most < unit ? (out + unit - 1) / unit : (out + most - 1) / most;
  const size_t band = ((out + tiles - 1) / tiles + unit - 1) / unit * unit;
  return band < out ? band : out;
}

static plan plan_of(const nmp_conv *c) {
  const size_t stride = (size_t)c->h.stride, strips = (c->out + BLOCK - 1) / BLOCK;
  size_t common = BLOCK; /* the largest power of two that divides BLOCK and the channels */
  plan p;
  while (c->out % common != 0) {
    common /= 2;
  }
  p.mode = c->x_wide && c->w_wide ? SPLIT : c->x_wide || c->w_wide || !HAS_QUADS ? PAIRS : QUADS;
  p.factors = p.mode == QUADS ? 4 : 2;
  p.groups = ((size_t)c->v.kernel + p.factors - 1) / p.factors;
  p.together = c->v.stride == 1 && c->v.dilation == 1 ? p.groups * p.factors - (size_t)c->v.kernel + 1 : 1;
  p.strips =
      (HAS_MASKS ? c->out * 5 >= strips * BLOCK * 4 : c->out % BLOCK == 0) || c->out / common * BLOCK > PERIOD_MAX;
  p.copied = c->out != c->in;
  p.sorted = !p.strips && stride > 1 && c->out % LANES != 0;
  p.copied |= p.sorted;
  p.pitch = p.strips ? BLOCK : c->out;
  p.period = p.strips ? strips : c->out / common;
  p.taps = p.groups * (size_t)c->h.kernel;
  p.reach = (size_t)((c->h.kernel - 1) * c->h.dilation);
  p.bytes = (size_t)1 << c->x_wide;
  p.band = p.strips ? (size_t)c->h.out : band_of(c, &p);
  p.tiles = p.strips ? strips : ((size_t)c->h.out + p.band - 1) / p.band;
  p.columns = columns_of(c, p.band);
  /* Blocks begin up to a vector after the first lane, and end up to a block after the last pixel that they need. */
  p.lanes = (p.columns * p.pitch + stride * (BLOCK + p.pitch) + LANES + BLOCK - 1) / LANES * LANES;
  p.pixels = p.copied ? (p.columns + stride - 1) / stride * stride : p.strips ? 1 : (size_t)c->h.in;
  return p;
}

/* The scratch of a task: lanes of a pixel of padding, a row of padding, copies of the rows of x that are needed at a
 * time, the lanes of each group.
 */
typedef struct parts {
  size_t outside, copies, row, lanes, end;
} parts;

static size_t align(size_t bytes) {
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static parts parts_of(const nmp_conv *c, const plan *p) {
  parts at;
  at.row = align(p->pixels * c->out * p->bytes);
  at.outside = align((c->out + BLOCK) * 4);
  at.copies = at.outside + at.row;
  at.lanes = at.copies + (p->copied ? p->groups * p->factors * at.row : 0);
  at.end = at.lanes + p->groups * p->lanes * 4 + ALIGN;
  return at;
}

static size_t scratch(const nmp_conv *c) {
  const plan p = plan_of(c);
  const size_t own = parts_of(c, &p).end, plain = nmp_conv_portable(c)->scratch(c);
  return own > plain ? own : plain;
}

/* Packed: whether the portable kernel has to run, then for each block starts, shifts and weights; all blocks again for
 * each further row that the lanes have room for, with the weights one factor later.
 */
#define HEADER 64

static size_t weight_lanes(const plan *p) {
  return p->taps * (p->mode == SPLIT ? 2 : 1) * BLOCK;
}

/* Lanes of a block in packed. */
static size_t block_lanes(const plan *p) {
  return 2 * BLOCK + weight_lanes(p);
}

static size_t packed(const nmp_conv *c) {
  const plan p = plan_of(c);
  return HEADER + p.together * p.period * block_lanes(&p) * 4;
}

static int32_t weight(const nmp_conv *c, size_t channel, size_t row, size_t column) {
  if (row >= (size_t)c->v.kernel) {
    return 0;
  }
  const size_t at = channel * c->k + row * (size_t)c->h.kernel + column;
  return c->w_wide ? ((const int16_t *)c->w)[at] : ((const int8_t *)c->w)[at];
}

/* The accumulator's start and the last shift of a channel; 0 when they do not fit. */
static int start_of(const nmp_conv *c, const plan *p, size_t channel, int32_t *start, int32_t *shift) {
  const int split = p->mode == SPLIT ? 8 : 0;
  const int64_t x_most = c->x_wide ? 32768 : 128;
  int64_t sum = 0, most = 0;
  for (size_t t = 0; t < c->k; t++) {
    const int64_t w = weight(c, channel, t / (size_t)c->h.kernel, t % (size_t)c->h.kernel);
    sum += w;
    most += (w < 0 ? -w : w) * x_most;
  }
  int s = nmp_conv_shift(c, channel);
  while (s > split + 1 && most < (int64_t)1 << (s - 2)) {
    s--; /* the sum is rounded to 0 anyway */
  }
  if (s < (split ? split + 1 : 0) || s - split > 31) {
    return 0;
  }
  s -= split;
  int64_t begin = (int64_t)nmp_conv_bias(c, channel) * ((int64_t)1 << s) + (s > 0 ? (int64_t)1 << (s - 1) : 0);
  begin -= p->mode == QUADS ? 128 * sum : 0;
  const int64_t most_added = split ? (int64_t)c->k << 23 : p->mode == QUADS ? (int64_t)c->k << 16 : most;
  if (begin > INT32_MAX - most_added || begin < INT32_MIN + most_added) {
    return 0;
  }
  *start = (int32_t)begin;
  *shift = s;
  return 1;
}

/* The factors of a group's rows from `row` on, in one lane. part: of SPLIT, 0 for the high one. */
static uint32_t weight_lane(const nmp_conv *c, const plan *p, size_t channel, ptrdiff_t row, size_t column, int part) {
  uint32_t lane = 0;
  for (size_t i = 0; i < p->factors; i++, row++) {
    const int32_t w = row < 0 ? 0 : weight(c, channel, (size_t)row, column);
    const int32_t factor = p->mode != SPLIT ? w : part ? w & 255 : w >> 8;
    lane |= p->mode == QUADS ? ((uint32_t)factor & 0xff) << (8 * i) : ((uint32_t)factor & 0xffff) << (16 * i);
  }
  return lane;
}

static void pack(const nmp_conv *c, void *to) {
  const plan p = plan_of(c);
  const size_t kw = (size_t)c->h.kernel, lanes = weight_lanes(&p);
  const size_t split = p.mode == SPLIT ? 2 : 1;
  uint32_t *plain = to;
  int32_t *block = (int32_t *)to + HEADER / 4;
  *plain = 0;
  for (size_t b = 0; b < p.together * p.period; b++, block += block_lanes(&p)) {
    for (size_t i = 0; i < BLOCK; i++) {
      const size_t place = b % p.period * BLOCK + i, channel = p.strips ? place : place % c->out;
      if (channel >= c->out) {
        for (size_t t = 0; t < 2 + lanes / BLOCK; t++) {
          block[t * BLOCK + i] = 0;
        }
        continue;
      }
      *plain |= !start_of(c, &p, channel, &block[i], &block[BLOCK + i]);
      for (size_t t = 0; t < lanes / BLOCK; t++) {
        const size_t tap = t / split;
        const ptrdiff_t row = (ptrdiff_t)(tap / kw * p.factors) - (ptrdiff_t)(b / p.period);
        block[(2 + t) * BLOCK + i] = (int32_t)weight_lane(c, &p, channel, row, tap % kw, (int)(t % split));
      }
    }
  }
}

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
} tile;

static tile tile_of(const nmp_conv *c, const plan *p, size_t i) {
  const size_t before = (size_t)c->h.before, in = (size_t)c->h.in;
  tile t = {0, p->band, 0, c->out, 0, 0, 0, 0};
  if (p->strips) {
    t.channel = i * BLOCK;
    t.channels = c->out - t.channel < BLOCK ? c->out - t.channel : BLOCK;
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
    s.steps[i] = row || p->copied ? pixel : 0;
    s.rows[i] = (row ? row + t->pixel * pixel : base + at->outside) + t->channel * p->bytes;
    if (p->copied) {
      uint8_t *copy = base + at->copies + i * at->row;
      copy_row(c, p, t, row, base + at->outside, copy);
      s.rows[i] = copy + t->channel * p->bytes;
    }
  }
  interleave(to + left * p->pitch, &s, p->pitch, p->mode, c->x_wide);
  for (size_t i = 0; i < left; i++) {
    memcpy(to + i * p->pitch, outside + t->channel, p->pitch * 4);
  }
  for (size_t i = left + inside; i < t->columns && !p->copied; i++) {
    memcpy(to + i * p->pitch, outside + t->channel, p->pitch * 4);
  }
}

/* 2. All blocks of tile number i in rows of y; set: of weights, for the first one. x, weights: of tap 0, of block 0. */
static void sum_tile(const nmp_conv *c, const plan *p, const tile *t, size_t i, size_t rows, size_t set, span *s) {
  const size_t stride = (size_t)c->h.stride, lanes = block_lanes(p), unit = p->sorted ? 1 : stride;
  const size_t elements = t->out * c->out, blocks = (elements + BLOCK - 1) / BLOCK, first = p->strips ? i : 0;
  const int32_t *weights = (const int32_t *)c->packed + HEADER / 4 + set * p->period * lanes;
  uint8_t *y[2] = {s->y[0], s->y[1]};
  s->advance = unit * (p->strips ? BLOCK : p->period * BLOCK);
  s->y_advance = (p->strips ? c->out : p->period * BLOCK) << c->y_wide;
  s->each = p->strips ? t->channels : BLOCK;
  for (size_t b = first; b < (p->strips ? i + 1 : p->period < blocks ? p->period : blocks); b++) {
    s->blocks = p->strips ? t->out : (blocks - b + p->period - 1) / p->period;
    s->last = p->strips ? t->channels : b == (blocks - 1) % p->period ? elements - (blocks - 1) * BLOCK : BLOCK;
    for (size_t j = 0; j < 4; j++) {
      const size_t e = (b - first) * BLOCK + j * LANES;
      s->at[j] = unit == 1 ? e : e / p->pitch * unit * p->pitch + e % p->pitch;
    }
    for (size_t r = 0; r < rows; r++) {
      s->y[r] = y[r] + (b * BLOCK << c->y_wide);
      s->weights[r] = weights + (r * p->period + b) * lanes;
    }
    if (p->mode == QUADS) {
      sum_quads(s, p->taps, (int)rows, c->y_wide);
    } else if (p->mode == PAIRS) {
      sum_pairs(s, p->taps, (int)rows, c->y_wide);
    } else {
      sum_split(s, p->taps, (int)rows, c->y_wide);
    }
  }
}

/* Rows [begin, last) of all images' rows. The lanes of a group serve the group before, when y's rows are as many as a
 * lane has factors: groups take turns.
 */
static void run_tile(const nmp_conv *c, const plan *p, const parts *at, size_t i, size_t begin, size_t last) {
  const tile t = tile_of(c, p, i);
  const size_t kw = (size_t)c->h.kernel, pad = p->copied ? 0 : (size_t)c->h.before * p->pitch;
  const size_t row_bytes = (size_t)c->h.out * c->out << c->y_wide;
  int32_t *lanes = (int32_t *)(void *)((uint8_t *)c->scratch + at->lanes) + (LANES - pad % LANES) % LANES;
  const int32_t *x_of[TAPS_MAX];
  span s;
  s.x = x_of;
  s.lo = c->lo;
  s.hi = c->hi;
  for (size_t row = begin, n, turn = 0; row < last; row += n, turn++) {
    const size_t image = row / (size_t)c->v.out, oy = row % (size_t)c->v.out, left = (size_t)c->v.out - oy;
    const uint8_t *x = (const uint8_t *)c->x + image * (size_t)c->v.in * (size_t)c->h.in * c->in * p->bytes;
    const int kept = p->together == p->factors && row > begin && oy > 0;
    n = left < last - row ? left : last - row;
    n = n < p->together ? n : p->together;
    for (size_t g = 0; g < p->groups; g++) {
      int32_t *to = lanes + (turn + g) % p->groups * p->lanes;
      if (!kept || g + 1 == p->groups) {
        fill_group(c, p, at, &t, x, oy, g, to);
      }
      for (size_t k = 0; k < kw; k++) {
        x_of[g * kw + k] = to + place(c, p, k * (size_t)c->h.dilation) * p->pitch;
      }
    }
    for (size_t r = 0; r < n; r += 2) {
      s.y[0] = (uint8_t *)c->y + (row + r) * row_bytes + (t.first * c->out << c->y_wide);
      s.y[1] = s.y[0] + row_bytes;
      sum_tile(c, p, &t, i, n - r < 2 ? 1 : 2, r, &s);
    }
  }
}

static void run(const nmp_conv *whole, size_t task, size_t tasks) {
  const plan p = plan_of(whole);
  const parts at = parts_of(whole, &p);
  const size_t rows = whole->images * (size_t)whole->v.out;
  nmp_conv c = *whole;
  if (*(const uint32_t *)c.packed) {
    if (task == 0) {
      nmp_conv_portable(&c)->run(&c, 0, 1);
    }
    return;
  }
  uint8_t *base = (uint8_t *)whole->scratch + task * scratch(whole);
  base += (ALIGN - (uintptr_t)base % ALIGN) % ALIGN;
  c.scratch = base;
  fill_lanes(&c, &p, (uint32_t *)(void *)base);
  fill_pixels(&c, base + at.outside, p.pixels);
  for (size_t i = 0; i < p.tiles; i++) {
    run_tile(&c, &p, &at, i, rows * task / tasks, rows * (task + 1) / tasks);
  }
}

static size_t tasks(const nmp_conv *c, size_t threads) {
  const size_t rows = c->images * (size_t)c->v.out, worth = nmp_conv_pixels(c) * c->out * c->k / SHARE + 1;
  const size_t most = rows < worth ? rows : worth;
  return threads < most ? threads : most;
}

const nmp_conv_kernel *CHOOSE(const nmp_conv *c) {
  static const nmp_conv_kernel depthwise = {packed, pack, scratch, tasks, run};
  if (c->groups != c->in || (c->in == 1 && c->out > 1) || c->k > TAPS_MAX) {
    return NULL;
  }
  const plan p = plan_of(c);
  return parts_of(c, &p).end <= SCRATCH_MAX ? &depthwise : NULL;
}
