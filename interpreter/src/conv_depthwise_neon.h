/* Depthwise convolution of AArch64: included by conv_depthwise_neon.c and conv_depthwise_neondot.c.
 *
 * 1. Each row of x is copied once into a ring of rows in the scratch: with its padding, channels repeated for a
 *    multiplier, pixels sorted by column modulo the stride. From then on there are no edges, and a tap is a shift.
 * 2. For dot products of bytes, the rows under the kernel are interleaved vertically for each row of y, so that a lane
 *    of 32 bits holds the 4 factors of one channel. Words are read from the ring as they are.
 * 3. The pixels of a row lie one after the other, so that a row is one long vector whatever the number of channels:
 *    blocks of it are summed up, tap by tap. Weights are repeated until a block starts with channel 0 again.
 *
 * The bias and the rounding start the accumulator. Where that does not fit 32 bits, pack() says so and the portable
 * kernel runs.
 *
 * Products are made in one of three ways, by the widths of x and w:
 *   QUADS  8 x 8, with dot products: 4 taps
 *   WORDS  any x, w of 8 bits: 1 tap
 *   SPLIT  any x, w of 16 bits: 256 * high + low; floor((256 * H + L + r) / 2^s) = (H + (L >> 8) + r / 256) >> (s - 8)
 */
enum { QUADS, WORDS, SPLIT };

#define LANE_BYTES(mode) ((mode) == QUADS ? 4u : 2u)
#define BLOCK (4 * LANES)
#define TAPS_MAX 128          /* SPLIT: 128 * 2^15 * 255 < 2^31 */
#define PERIOD_MAX 4096       /* channels of all blocks with weights of their own, while pixels are not padded */
#define ALIGN 64              /* of the scratch: loads that cross lines of a cache cost twice */
#define SCRATCH_MAX (1 << 20) /* bytes of a task */
#define CHUNK_BYTES 24576     /* of interleaved rows: half a first-level cache */
#define SHARE 400000          /* products that are worth a task */

typedef struct plan {
  int mode;
  size_t factors, groups; /* rows in a lane; lanes for the rows of the kernel */
  size_t together;        /* 2: the lanes have room for the kernels of two rows of y, one below the other */
  size_t pitch;           /* channels of a pixel in the ring: those of y, or a multiple of BLOCK */
  size_t period;          /* blocks with weights of their own */
  size_t bytes;           /* of an element in the ring */
  size_t columns, halo;   /* pixels of a row with padding; elements that a phase has more than a row of y */
  size_t phase, rows;     /* elements of the pixels with the same column modulo stride; rows of the ring */
  size_t phases, chunk;   /* phases; blocks that are interleaved at a time */
} plan;

static plan plan_of(const nmp_conv *c) {
  const size_t kw = (size_t)c->h.kernel, stride = (size_t)c->h.stride, out = (size_t)c->h.out;
  const size_t reach = (kw - 1) * (size_t)c->h.dilation;
  size_t common = BLOCK; /* the largest power of two that divides BLOCK and the channels */
  plan p;
  while (c->out % common != 0) {
    common /= 2;
  }
  p.mode = c->w_wide ? SPLIT : c->x_wide || !HAS_QUADS ? WORDS : QUADS;
  p.factors = p.mode == QUADS ? 4 : 1;
  p.groups = ((size_t)c->v.kernel + p.factors - 1) / p.factors;
  p.together = c->v.stride == 1 && c->v.dilation == 1 && (size_t)c->v.kernel < p.groups * p.factors ? 2 : 1;
  p.pitch = c->out;
  p.period = c->out / common;
  if (p.period * BLOCK > PERIOD_MAX) {
    p.period = (c->out + BLOCK - 1) / BLOCK;
    p.pitch = p.period * BLOCK;
  }
  p.bytes = p.mode == QUADS ? 1 : 2;
  p.columns = (out - 1) * stride + reach + 1;
  p.halo = reach / stride * p.pitch;
  p.phase = (out * p.pitch + p.halo + 2 * BLOCK + 63) / 64 * 64;
  p.rows = (size_t)(c->v.kernel - 1) * (size_t)c->v.dilation + p.together;
  p.phases = stride;
  const size_t lanes = CHUNK_BYTES / 4 / (p.groups * p.phases);
  p.chunk = lanes > p.halo + BLOCK * p.period ? (lanes - p.halo) / BLOCK : p.period;
  if (p.factors == 1) {
    p.chunk = (out * p.pitch + BLOCK - 1) / BLOCK;
  }
  return p;
}

/* The scratch of a task: a pixel of padding, a row in the order of x, the ring, the interleaved rows if any. */
typedef struct parts {
  size_t row, ring, interleaved, end;
} parts;

static size_t interleaved_phase(const plan *p) {
  return (p->chunk + 1) * BLOCK + (p->halo + BLOCK - 1) / BLOCK * BLOCK;
}

static parts parts_of(const plan *p) {
  parts at;
  at.row = (p->pitch * p->bytes + 63) / 64 * 64;
  at.ring = at.row + (p->phases > 1 ? (p->columns * p->pitch * p->bytes + 63) / 64 * 64 : 0);
  at.interleaved = at.ring + p->rows * p->phases * p->phase * p->bytes;
  at.end = at.interleaved + (p->factors == 1 ? 0 : p->groups * p->phases * interleaved_phase(p) * 4) + ALIGN;
  return at;
}

static size_t scratch(const nmp_conv *c) {
  const plan p = plan_of(c);
  const size_t own = parts_of(&p).end, plain = nmp_conv_portable(c)->scratch(c);
  return own > plain ? own : plain;
}

/* Packed: whether the portable kernel has to run, then for each block starts, shifts and weights; all blocks a second
 * time for the second of two rows, with the weights one factor later.
 */
#define HEADER 64

/* Lanes of weights of a channel. */
static size_t weight_lanes(const nmp_conv *c, const plan *p) {
  return p->groups * (size_t)c->h.kernel * (p->mode == SPLIT ? 2 : 1);
}

/* In units of 4 bytes. */
static size_t block_size(const nmp_conv *c, const plan *p) {
  return 2 * BLOCK + BLOCK * weight_lanes(c, p) * LANE_BYTES(p->mode) / 4;
}

static size_t packed(const nmp_conv *c) {
  const plan p = plan_of(c);
  return HEADER + p.together * p.period * block_size(c, &p) * 4;
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
  int64_t most = 0;
  for (size_t t = 0; t < c->k; t++) {
    const int64_t w = weight(c, channel, t / (size_t)c->h.kernel, t % (size_t)c->h.kernel);
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
  const int64_t most_added = split ? (int64_t)c->k << 23 : most;
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

static void put_lane(int32_t *lanes, size_t i, uint32_t lane, const plan *p) {
  if (p->factors == 1) {
    ((int16_t *)(void *)lanes)[i] = (int16_t)lane;
  } else {
    lanes[i] = (int32_t)lane;
  }
}

static void pack(const nmp_conv *c, void *to) {
  const plan p = plan_of(c);
  const size_t kw = (size_t)c->h.kernel, lanes = weight_lanes(c, &p);
  const size_t split = p.mode == SPLIT ? 2 : 1;
  uint32_t *plain = to;
  int32_t *block = (int32_t *)to + HEADER / 4;
  *plain = 0;
  for (size_t b = 0; b < p.together * p.period; b++, block += block_size(c, &p)) {
    for (size_t i = 0; i < BLOCK; i++) {
      const size_t channel = (b % p.period * BLOCK + i) % p.pitch;
      block[i] = block[BLOCK + i] = 0;
      *plain |= channel < c->out && !start_of(c, &p, channel, &block[i], &block[BLOCK + i]);
      for (size_t t = 0; t < lanes; t++) {
        const size_t tap = t / split;
        const ptrdiff_t row = (ptrdiff_t)(tap / kw * p.factors) - (b >= p.period);
        put_lane(block + 2 * BLOCK + t * BLOCK * LANE_BYTES(p.mode) / 4, i,
                 channel < c->out ? weight_lane(c, &p, channel, row, tap % kw, (int)(t % split)) : 0, &p);
      }
    }
  }
}

#include "conv_depthwise_neon_ring.h"

/* 2. What blocks [first, first + chunk) of output row oy need, lane by lane, for every group and phase. */
static void interleave(const nmp_conv *c, const plan *p, const parts *at, size_t oy, size_t first, size_t blocks) {
  const size_t stride = interleaved_phase(p), n = blocks + (p->halo + BLOCK - 1) / BLOCK;
  const uint8_t *ring = (const uint8_t *)c->scratch + at->ring;
  int32_t *to = (int32_t *)(void *)((uint8_t *)c->scratch + at->interleaved);
  for (size_t g = 0; g < p->groups; g++) {
    for (size_t r = 0; r < p->phases; r++, to += stride) {
      const uint8_t *rows[4];
      for (size_t i = 0; i < p->factors; i++) {
        const size_t tap = g * p->factors + i, last = (size_t)c->v.kernel + p->together - 2;
        const size_t line = oy * (size_t)c->v.stride + (tap < last ? tap : last) * (size_t)c->v.dilation;
        rows[i] = ring + ((line % p->rows * p->phases + r) * p->phase + first * BLOCK) * p->bytes;
      }
      for (size_t b = 0; b < n; b++) {
        interleave_quads(to + b * BLOCK, rows, b * BLOCK);
      }
    }
  }
}

/* A row of y: lines of some elements, which is one line when pixels are not padded. Blocks are numbered from the one
 * that the interleaved rows start with.
 */
typedef struct row {
  uint8_t *y;
  size_t pitch, length; /* elements of a line in the ring and in y */
  size_t origin;        /* elements in front of block 0 */
  size_t blocks, period;
  int32_t lo, hi;
} row;

static NMP_INLINE uint8_t *place(const row *t, size_t block, int y_wide, size_t *n) {
  const size_t i = t->origin + block * BLOCK, line = i < t->pitch ? 0 : i / t->pitch, in_line = i - line * t->pitch;
  const size_t left = in_line < t->length ? t->length - in_line : 0;
  *n = left < BLOCK ? left : BLOCK;
  return t->y + ((line * t->length + in_line) << y_wide);
}

/* Adds the products of a block with one tap. */
static NMP_INLINE void add_tap(vector *high, vector *low, const uint8_t *x, const uint8_t *w, int mode) {
  const size_t step = LANES * LANE_BYTES(mode);
  for (size_t j = 0; mode != QUADS && j < 4; j += 2) {
    const vector factors = load(x + j * step), weights = load(w + j * step);
    high[j] = multiply_low(high[j], factors, weights);
    high[j + 1] = multiply_high(high[j + 1], factors, weights);
    if (mode == SPLIT) {
      const vector more = load(w + (4 + j) * step);
      low[j] = multiply_low(low[j], factors, more);
      low[j + 1] = multiply_high(low[j + 1], factors, more);
    }
  }
  for (size_t j = 0; mode == QUADS && j < 4; j++) {
    high[j] = dot_quads(high[j], load(x + j * step), load(w + j * step));
  }
}

/* 3. The blocks first, first + period, ..., all of the same weights; x: of each tap, for block 0. */
static NMP_INLINE void sum_blocks(row t, size_t first, const uint8_t *const *x, const int32_t *block, size_t taps,
                                  int mode, int y_wide) {
  const vector lo = y_wide ? set16(t.lo) : set8(t.lo), hi = y_wide ? set16(t.hi) : set8(t.hi);
  vector start[4], shift[4], high[4], low[4];
  for (int j = 0; j < 4; j++) {
    start[j] = load(block + j * LANES);
    shift[j] = load(block + BLOCK + j * LANES);
  }
  for (size_t b = first; b < t.blocks; b += t.period) {
    const uint8_t *w = (const uint8_t *)(block + 2 * BLOCK);
    size_t n;
    uint8_t *y = place(&t, b, y_wide, &n);
    for (int j = 0; j < 4; j++) {
      high[j] = start[j];
      low[j] = zero();
    }
    for (size_t tap = 0; tap < taps; tap++, w += (mode == SPLIT ? 2u : 1u) * BLOCK * LANE_BYTES(mode)) {
      add_tap(high, low, x[tap] + b * BLOCK * LANE_BYTES(mode), w, mode);
    }
    for (int j = 0; j < 4; j++) {
      high[j] = shift_right(mode == SPLIT ? add(high[j], shift_right_8(low[j])) : high[j], shift[j]);
    }
    if (y_wide) {
      store16(y, high, lo, hi, n);
    } else {
      store8(y, high, lo, hi, n);
    }
  }
}

/* A constant number of taps for kernels of 3 x 3, whose weights a compiler can keep in registers. */
static void sum_row(const row *t, const plan *p, const uint8_t *const *x, const int32_t *blocks, size_t size,
                    size_t taps, int y_wide) {
  for (size_t b = 0; b < t->blocks && b < t->period; b++) {
    const int32_t *block = blocks + (t->origin / BLOCK + b) % t->period * size;
    if (p->mode == QUADS && taps == 3 && !y_wide) {
      sum_blocks(*t, b, x, block, 3, QUADS, 0);
    } else if (p->mode == QUADS) {
      sum_blocks(*t, b, x, block, taps, QUADS, y_wide);
    } else if (p->mode == WORDS && taps == 9 && y_wide) {
      sum_blocks(*t, b, x, block, 9, WORDS, 1);
    } else if (p->mode == WORDS && taps == 9) {
      sum_blocks(*t, b, x, block, 9, WORDS, 0);
    } else if (p->mode == WORDS) {
      sum_blocks(*t, b, x, block, taps, WORDS, y_wide);
    } else {
      sum_blocks(*t, b, x, block, taps, SPLIT, y_wide);
    }
  }
}

/* Where the factors of a tap for block `first` of output row oy are: as interleaved, or in the ring. */
static const uint8_t *place_of_tap(const nmp_conv *c, const plan *p, const parts *at, size_t oy, size_t first,
                                   size_t tap) {
  const size_t kw = (size_t)c->h.kernel, column = tap % kw * (size_t)c->h.dilation, group = tap / kw;
  const size_t phase = column % p->phases, lane = column / p->phases * p->pitch;
  const uint8_t *base = c->scratch;
  if (p->factors == 1) {
    const size_t line = oy * (size_t)c->v.stride + group * (size_t)c->v.dilation;
    return base + at->ring + ((line % p->rows * p->phases + phase) * p->phase + lane + first * BLOCK) * p->bytes;
  }
  return base + at->interleaved + ((group * p->phases + phase) * interleaved_phase(p) + lane) * 4;
}

/* Rows oy and, with n == 2, oy + 1 of an image's result, at y. */
static void run_pair(const nmp_conv *c, const plan *p, const parts *at, uint8_t *y, size_t oy, size_t n) {
  const size_t width = (size_t)c->h.out, taps = p->groups * (size_t)c->h.kernel;
  const size_t blocks = (width * p->pitch + BLOCK - 1) / BLOCK, size = block_size(c, p);
  const size_t row_bytes = width * c->out << c->y_wide;
  const uint8_t *x[TAPS_MAX];
  row t = {y, p->pitch, c->out, 0, 0, p->period, c->lo, c->hi};
  if (p->pitch == c->out) {
    t.pitch = t.length = width * c->out;
  }
  for (size_t first = 0; first < blocks; first += p->chunk) {
    t.origin = first * BLOCK;
    t.blocks = blocks - first < p->chunk ? blocks - first : p->chunk;
    for (size_t tap = 0; tap < taps; tap++) {
      x[tap] = place_of_tap(c, p, at, oy, first, tap);
    }
    if (p->factors > 1) {
      interleave(c, p, at, oy, first, t.blocks);
    }
    for (size_t i = 0; i < n; i++) {
      t.y = y + i * row_bytes;
      sum_row(&t, p, x, (const int32_t *)c->packed + HEADER / 4 + i * p->period * size, size, taps, c->y_wide);
    }
  }
}

/* Rows [begin, last) of all images' rows, the first one at y. */
static void run_rows(const nmp_conv *whole, size_t begin, size_t last, uint8_t *y) {
  const plan p = plan_of(whole);
  const parts at = parts_of(&p);
  const size_t row_bytes = (size_t)whole->h.out * whole->out << whole->y_wide;
  nmp_conv own = *whole;
  const nmp_conv *c = &own;
  int32_t filled = 0; /* rows before this one are in the ring */
  own.scratch = (uint8_t *)own.scratch + (ALIGN - (uintptr_t)own.scratch % ALIGN) % ALIGN;
  memset(own.scratch, 0, p.pitch * p.bytes);
  if (c->pad) {
    convert_pixels(own.scratch, c->pad, 1, c, &p);
  }
  for (size_t row = begin, n; row < last; row += n, y += n * row_bytes) {
    const size_t image = row / (size_t)c->v.out, oy = row % (size_t)c->v.out;
    const uint8_t *x = (const uint8_t *)c->x + (image * (size_t)c->v.in * (size_t)c->h.in * c->in << c->x_wide);
    const int32_t top = nmp_pixel(&c->v, (int32_t)oy, 0), end = top + (int32_t)p.rows;
    filled = row == begin || oy == 0 || filled < top ? top : filled;
    for (; filled < end; filled++) {
      const size_t slot = (size_t)(filled + c->v.before) % p.rows;
      fill_row(c, &p, &at, x, filled, (uint8_t *)own.scratch + at.ring + slot * p.phases * p.phase * p.bytes);
    }
    n = p.together == 2 && row + 1 < last && oy + 1 < (size_t)c->v.out ? 2 : 1;
    run_pair(c, &p, &at, y, oy, n);
  }
}

/* pack() says that the portable kernel has to run. */
static int is_plain(const nmp_conv *c) {
  return *(const uint32_t *)c->packed != 0;
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
  return parts_of(&p).end <= SCRATCH_MAX ? &depthwise : NULL;
}
