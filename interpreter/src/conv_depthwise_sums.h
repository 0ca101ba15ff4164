/* The inner loops of conv_depthwise.h, which says what they are for: rows become lanes, blocks of lanes become y. */
enum { QUADS, PAIRS, SPLIT };

#define BLOCK (4 * LANES)
#define NUMBERS(mode) ((mode) == SPLIT ? 3u : 2u) /* of a channel in front of its weights: start, shift, bias */
#define TAPS_MAX 128                              /* SPLIT: 128 * 2^15 * 255 < 2^31 */

/* The rows of a lane's factors; lines of so many elements, which is one line where a row is one long vector. */
typedef struct source {
  const uint8_t *rows[4];
  size_t steps[4]; /* bytes from a line to the next */
  size_t lines, length;
} source;

static NMP_INLINE vector quad_of(const uint8_t *x, size_t n) {
  return flip(n < BLOCK ? load_bytes(x, n) : load(x)); /* x + 128 */
}

/* Half a block's elements of int16. */
static NMP_INLINE vector pair_of(const uint8_t *x, size_t n, int x_wide) {
  if (n < 2 * LANES) {
    return x_wide ? load_bytes(x, n * 2) : widen(load_bytes(x, n));
  }
  return x_wide ? load(x) : load_wide(x);
}

/* What one load of n elements makes, up to `step`. */
static NMP_INLINE void interleave_step(int32_t *to, const uint8_t *const *rows, size_t at, size_t n, int mode,
                                       int x_wide) {
  vector x[4];
  if (mode == QUADS) {
    NMP_UNROLL for (int i = 0; i < 4; i++) {
      x[i] = quad_of(rows[i] + at, n);
    }
    interleave_quads(to + at, x);
  } else {
    x[0] = pair_of(rows[0] + (at << x_wide), n, x_wide);
    x[1] = pair_of(rows[1] + (at << x_wide), n, x_wide);
    interleave_pairs(to + at, x[0], x[1]);
  }
}

/* Lines go `pitch` lanes apart. What is needed is copied from s, since `to` might be anything to a compiler. */
static NMP_INLINE void interleave_lines(int32_t *to, const source *s, size_t pitch, int mode, int x_wide) {
  const size_t step = mode == QUADS ? BLOCK : 2 * LANES, factors = mode == QUADS ? 4 : 2, length = s->length;
  const uint8_t *rows[4] = {s->rows[0], s->rows[1], s->rows[factors - 2], s->rows[factors - 1]};
  const size_t steps[4] = {s->steps[0], s->steps[1], s->steps[factors - 2], s->steps[factors - 1]};
  for (size_t lines = s->lines; lines > 0; lines--, to += pitch) {
    size_t at = 0;
    for (; at + step <= length; at += step) {
      interleave_step(to, rows, at, step, mode, x_wide);
    }
    if (at < length) {
      interleave_step(to, rows, at, length - at, mode, x_wide);
    }
    for (int i = 0; i < 4; i++) {
      rows[i] += steps[i];
    }
  }
}

typedef void interleave_fn(int32_t *to, const source *s, size_t pitch);

static void interleave_bytes(int32_t *to, const source *s, size_t pitch) {
  interleave_lines(to, s, pitch, QUADS, 0);
}

static void interleave_words(int32_t *to, const source *s, size_t pitch) {
  interleave_lines(to, s, pitch, PAIRS, 1);
}

static void interleave_widened(int32_t *to, const source *s, size_t pitch) {
  interleave_lines(to, s, pitch, PAIRS, 0);
}

/* Up to a vector more than n. */
static NMP_INLINE void copy_lanes(int32_t *to, const int32_t *from, size_t n) {
  for (size_t i = 0; i < n; i += LANES) {
    save(to + i, load(from + i));
  }
}

/* Blocks of the same weights, in one row of y or two. */
typedef struct span {
  const int32_t *x[TAPS_MAX]; /* lanes of each tap */
  size_t taps;
  size_t at[4], advance;     /* of the first block's vectors; lanes from a block to the next */
  size_t y_advance;          /* bytes */
  size_t blocks, each, last; /* elements that are stored of each, and of the last one */
  const int32_t *weights[2]; /* of each row: NUMBERS, then the factors of each tap */
  int32_t lo, hi;
} span;
typedef void sum_fn(const span *s, uint8_t *y0, uint8_t *y1);

/* The end of blocks: shifted sums of `count` of them for each row. */
static NMP_INLINE void store_blocks(uint8_t *const y[2], size_t y_advance, vector sums[2][AT_ONCE][4], vector lo,
                                    vector hi, size_t count, size_t each, size_t last, int rows, int y_wide) {
  NMP_UNROLL for (int r = 0; r < rows; r++) {
    NMP_UNROLL for (size_t b = 0; b < count; b++) {
      const size_t n = b + 1 < count ? each : last;
      if (y_wide) {
        store16(y[r] + b * y_advance, sums[r][b], lo, hi, n);
      } else {
        store8(y[r] + b * y_advance, sums[r][b], lo, hi, n);
      }
    }
  }
}

/* Vector j of `count` blocks (up to 4) at `first` lanes, so that weights are loaded once for all. */
static NMP_INLINE void sum_vectors(vector sums[2][4], const span *s, const int32_t *const *taps_x, size_t j,
                                   size_t first, size_t advance, size_t count, size_t taps, int mode, int rows) {
  const int32_t *w[2] = {s->weights[0] + j * LANES, s->weights[rows - 1] + j * LANES};
  size_t at = s->at[j] + first;
  NMP_KEEP("+r", at);
  vector high[2][4], low[2][4];
  NMP_UNROLL for (int r = 0; r < rows; r++) {
    NMP_UNROLL for (size_t b = 0; b < count; b++) {
      high[r][b] = load(w[0]);
      low[r][b] = zero();
    }
  }
  for (size_t tap = 0; tap < taps; tap++) {
    const int32_t *x = taps_x[tap] + at;
    const size_t offset = (NUMBERS(mode) + (mode == SPLIT ? 2 : 1) * tap) * BLOCK;
    NMP_UNROLL for (int r = 0; r < rows; r++) {
      vector factors = load(w[r] + offset);
      vector lower = mode == SPLIT ? load(w[r] + offset + BLOCK) : zero();
      if (count > 1) { /* else they are operands in memory */
        NMP_KEEP("+v", factors);
      }
      if (count > 1 && mode == SPLIT) {
        NMP_KEEP("+v", lower);
      }
      NMP_UNROLL for (size_t b = 0; b < count; b++) {
        const vector lanes = load(x + b * advance);
        high[r][b] = mode == QUADS ? dot_quads(high[r][b], lanes, factors) : dot_pairs(high[r][b], lanes, factors);
        NMP_KEEP("+v", high[r][b]);
        if (mode == SPLIT) {
          low[r][b] = dot_pairs(low[r][b], lanes, lower);
          NMP_KEEP("+v", low[r][b]);
        }
      }
    }
  }
  const vector shift = load(w[0] + BLOCK);
  NMP_UNROLL for (int r = 0; r < rows; r++) {
    NMP_UNROLL for (size_t b = 0; b < count; b++) {
      const vector sum = mode == SPLIT ? add(high[r][b], shift_right_8(low[r][b])) : high[r][b];
      sums[r][b] = shift_right(sum, shift);
      if (mode == SPLIT) {
        sums[r][b] = add(sums[r][b], load(w[0] + 2 * BLOCK));
      }
    }
  }
}

/* Up to AT_ONCE blocks, whose vectors are stored together. */
static NMP_INLINE void sum_blocks(vector sums[2][AT_ONCE][4], const span *s, const int32_t *const *taps_x, size_t first,
                                  size_t advance, size_t count, size_t taps, int mode, int rows) {
  NMP_UNROLL for (size_t j = 0; j < 4; j++) {
    vector each[2][4];
    sum_vectors(each, s, taps_x, j, first, advance, count, taps, mode, rows);
    NMP_UNROLL for (int r = 0; r < rows; r++) {
      NMP_UNROLL for (size_t b = 0; b < count; b++) {
        sums[r][b][j] = each[r][b];
      }
    }
  }
}

#if HAS_ACROSS
/* Registers for the sums of a block are too few to load weights once for several: here a vector of several blocks is
 * summed up and stored, and then the next one. Returns how many of the first blocks are done, whole ones.
 */
static NMP_INLINE size_t sum_across(const span *s, const int32_t *const *taps_x, uint8_t *y0, uint8_t *y1, vector lo,
                                    vector hi, size_t taps, int mode, int rows, int y_wide) {
  const size_t count = mode == SPLIT ? 2 : 4, advance = s->advance, y_advance = s->y_advance;
  const size_t whole = s->each < BLOCK ? 0 : s->last < BLOCK ? s->blocks - 1 : s->blocks;
  size_t done = 0;
  while (whole >= count && done < whole) {
    if (count == 4 && whole - done == 3) {
      done--; /* one is computed twice */
    } else if (whole - done < count) {
      break;
    }
    uint8_t *y[2] = {y0 + done * y_advance, y1 + done * y_advance};
    for (size_t j = 0; j < 4; j++) {
      vector sums[2][4];
      sum_vectors(sums, s, taps_x, j, done * advance, advance, count, taps, mode, rows);
      NMP_UNROLL for (int r = 0; r < rows; r++) {
        save_across(y[r] + (j * LANES << y_wide), y_advance, sums[r], lo, hi, count, y_wide);
      }
    }
    done += count;
  }
  return done;
}
#endif

static NMP_INLINE void sum_span(const span *s, uint8_t *y0, uint8_t *y1, size_t taps, int mode, int rows, int y_wide) {
  const vector lo = y_wide ? set16(s->lo) : set8(s->lo), hi = y_wide ? set16(s->hi) : set8(s->hi);
  const size_t advance = s->advance, y_advance = s->y_advance, each = s->each, last = s->last;
  uint8_t *y[2] = {y0, y1};
  vector sums[2][AT_ONCE][4];
  const int32_t *x[TAPS_MAX];
  size_t left = s->blocks, first = 0;
  for (size_t tap = 0; tap < taps; tap++) {
    x[tap] = s->x[tap];
  }
#if HAS_ACROSS
  const size_t done = sum_across(s, x, y0, y1, lo, hi, taps, mode, rows, y_wide);
  left -= done;
  first += done * advance;
  y[0] += done * y_advance;
  y[1] += done * y_advance;
#endif
  for (; left >= AT_ONCE; left -= AT_ONCE, first += AT_ONCE * advance) {
    sum_blocks(sums, s, x, first, advance, AT_ONCE, taps, mode, rows);
    store_blocks(y, y_advance, sums, lo, hi, AT_ONCE, each, left == AT_ONCE ? last : each, rows, y_wide);
    y[0] += AT_ONCE * y_advance;
    y[1] += AT_ONCE * y_advance;
  }
  for (; left > 0; left--, first += advance) {
    sum_blocks(sums, s, x, first, advance, 1, taps, mode, rows);
    store_blocks(y, y_advance, sums, lo, hi, 1, each, left == 1 ? last : each, rows, y_wide);
    y[0] += y_advance;
    y[1] += y_advance;
  }
}

#define SUM(name, taps, mode, rows, y_wide)                   \
  static void name(const span *s, uint8_t *y0, uint8_t *y1) { \
    sum_span(s, y0, y1, taps, mode, rows, y_wide);            \
  }
#define SUMS(name, taps, mode, y_wide) \
  SUM(name##_1, taps, mode, 1, y_wide) \
  SUM(name##_2, taps, mode, 2, y_wide)

SUMS(quads_to8, s->taps, QUADS, 0)
SUMS(quads_to16, s->taps, QUADS, 1)
SUMS(pairs_to8, s->taps, PAIRS, 0)
SUMS(pairs_to16, s->taps, PAIRS, 1)
SUMS(split_to8, s->taps, SPLIT, 0)
SUMS(split_to16, s->taps, SPLIT, 1)

/* Constant numbers of taps for kernels of 3 x 3. */
SUMS(quads_3x3, 3, QUADS, 0)
SUMS(pairs_3x3, 6, PAIRS, 1)
SUMS(split_3x3, 6, SPLIT, 1)

/* [0] for one row of y, [1] for two */
static sum_fn *const *sums_of(int mode, size_t taps, int y_wide) {
  static sum_fn *const any[3][2][2] = {{{quads_to8_1, quads_to8_2}, {quads_to16_1, quads_to16_2}},
                                       {{pairs_to8_1, pairs_to8_2}, {pairs_to16_1, pairs_to16_2}},
                                       {{split_to8_1, split_to8_2}, {split_to16_1, split_to16_2}}};
  static sum_fn *const of_3x3[3][2] = {
      {quads_3x3_1, quads_3x3_2}, {pairs_3x3_1, pairs_3x3_2}, {split_3x3_1, split_3x3_2}};
  const int is_3x3 = mode == QUADS ? taps == 3 && !y_wide : taps == 6 && y_wide;
  return is_3x3 ? of_3x3[mode] : any[mode][y_wide];
}
