/* How conv_depthwise.h divides a convolution, and the order of weights that follows. */
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
  /* Parts of vectors are better than copies that sort pixels, where there are masks. */
  p.strips = HAS_MASKS ? c->out * 5 >= strips * BLOCK * 4 || (stride > 1 && c->out % LANES != 0) : c->out % BLOCK == 0;
  p.strips |= c->out / common * BLOCK > PERIOD_MAX;
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

/* Packed: this, then for each block its NUMBERS and weights; all blocks again for each further row that the lanes have
 * room for, with the weights one factor later.
 */
typedef struct header {
  plan plan;
  parts parts;
  int plain; /* the portable kernel has to run */
} header;

#define HEADER ((sizeof(header) + ALIGN - 1) / ALIGN * ALIGN)

static size_t weight_lanes(const plan *p) {
  return p->taps * (p->mode == SPLIT ? 2 : 1) * BLOCK;
}

/* Lanes of a block in packed. */
static size_t block_lanes(const plan *p) {
  return NUMBERS(p->mode) * BLOCK + weight_lanes(p);
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

/* The accumulator's start and the last shift of a channel, and with SPLIT its bias, BLOCK apart; 0 when they do not
 * fit.
 */
static int start_of(const nmp_conv *c, const plan *p, size_t channel, int32_t *numbers) {
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
  const int64_t bias = nmp_conv_bias(c, channel), bias_most = ((int64_t)1 << 30) - 1;
  int64_t begin = (split ? 0 : bias * ((int64_t)1 << s)) + (s > 0 ? (int64_t)1 << (s - 1) : 0);
  begin -= p->mode == QUADS ? 128 * sum : 0;
  const int64_t most_added = split ? (int64_t)c->k << 23 : p->mode == QUADS ? (int64_t)c->k << 16 : most;
  if (begin > INT32_MAX - most_added || begin < INT32_MIN + most_added) {
    return 0;
  }
  numbers[0] = (int32_t)begin;
  numbers[BLOCK] = s;
  if (split) {
    numbers[2 * BLOCK] = (int32_t)bias; /* a shifted sum has 31 bits */
  }
  return !split || (bias >= -bias_most && bias <= bias_most);
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
  header *h = (header *)to;
  int32_t *block = (int32_t *)to + HEADER / 4;
  *h = (header){p, parts_of(c, &p), 0};
  for (size_t b = 0; b < p.together * p.period; b++, block += block_lanes(&p)) {
    for (size_t i = 0; i < BLOCK; i++) {
      const size_t place = b % p.period * BLOCK + i, channel = p.strips ? place : place % c->out;
      if (channel >= c->out) {
        for (size_t t = 0; t < block_lanes(&p) / BLOCK; t++) {
          block[t * BLOCK + i] = 0;
        }
        continue;
      }
      h->plain |= !start_of(c, &p, channel, &block[i]);
      for (size_t t = 0; t < lanes / BLOCK; t++) {
        const size_t tap = t / split;
        const ptrdiff_t row = (ptrdiff_t)(tap / kw * p.factors) - (ptrdiff_t)(b / p.period);
        block[(NUMBERS(p.mode) + t) * BLOCK + i] =
            (int32_t)weight_lane(c, &p, channel, row, tap % kw, (int)(t % split));
      }
    }
  }
}
