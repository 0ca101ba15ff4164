/* Element-wise kernels for one instruction set: included by kernels_<isa>.c between vector<bits>.h and its table. Sums
 * are dot products of the pair (a, b) with the powers of two that align them:
 * int32 in all cases, with half a unit as their start. What does not fit that is left to the loops.
 */
#define STEP (2 * LANES) /* elements of int16 of a vector */
#define SCALE_MAX 14     /* 2^14 is an int16 */
#define SHIFT_MAX 30     /* 2 * 2^15 * 2^14 + 2^29 and 2^30 + 2^29 are below 2^31 */

/* What a call has for all elements. */
typedef struct common {
  pair scales;
  vector round, lo, hi;
  int shift;
} common;

static NMP_INLINE common common_of(int a_shift, int b_scale, int shift, int32_t lo, int32_t hi) {
  return (common){set_pairs(1 << a_shift, b_scale), set32(shift > 0 ? 1 << (shift - 1) : 0), set16(lo), set16(hi),
                  shift};
}

/* STEP elements. */
static NMP_INLINE void store_step(void *y, vector low, vector high, const common *all, int y_wide) {
  vector v = saturate16(shift_all(low, all->shift), shift_all(high, all->shift));
  v = max16(min16(v, all->hi), all->lo);
  if (y_wide) {
    save(y, v);
  } else {
    save_narrow(y, v);
  }
}

static NMP_INLINE void sum_step(void *y, vector a, vector b, const common *all, int y_wide) {
  store_step(y, dot_pairs(all->round, pair_low(a, b), all->scales), dot_pairs(all->round, pair_high(a, b), all->scales),
             all, y_wide);
}

#ifdef HAS_BYTE_PAIRS
/* Sums of int8 in int16, where scales and shift are small: (a + 128) and (b + 128) are unsigned bytes, and what is too
 * much is taken off with the rounding.
 */
#define BYTES (4 * LANES) /* elements of int8 of a vector */
#define BYTE_SCALE_MAX 6  /* 2 * 255 * 2^6 is below 2^15 */
#define BYTE_SHIFT_MAX 14 /* 2 * 128 * 2^6 + 2^13 is, too */

/* As many elements as there are whole vectors of them, or none; returns how many. */
static NMP_INLINE size_t sum_bytes(uint8_t *y, const uint8_t *a, const uint8_t *b, size_t n, int32_t b_scale,
                                   const nmp_binary *how) {
  if (how->a_shift > BYTE_SCALE_MAX || how->b_shift > BYTE_SCALE_MAX || how->shift > BYTE_SHIFT_MAX) {
    return 0;
  }
  const int32_t a_scale = 1 << how->a_shift;
  const pair scales = set16(b_scale * 256 + a_scale);
  const vector round = set16((how->shift > 0 ? 1 << (how->shift - 1) : 0) - 128 * (a_scale + b_scale));
  const vector lo = set8(how->lo), hi = set8(how->hi);
  size_t i = 0;
  for (; i + BYTES <= n; i += BYTES) {
    const vector p = flip(load(a + i)), q = flip(load(b + i));
    const vector low = add16(multiply_byte_pairs(byte_pair_low(p, q), scales), round);
    const vector high = add16(multiply_byte_pairs(byte_pair_high(p, q), scales), round);
    const vector v = saturate8(shift_all16(low, how->shift), shift_all16(high, how->shift));
    save(y + i, max8(min8(v, hi), lo));
  }
  return i;
}
#else
static NMP_INLINE size_t sum_bytes(uint8_t *y, const uint8_t *a, const uint8_t *b, size_t n, int32_t b_scale,
                                   const nmp_binary *how) {
  (void)y, (void)a, (void)b, (void)n, (void)b_scale, (void)how;
  return 0;
}
#endif

static NMP_INLINE void product_step(void *y, vector a, vector b, const common *all, int y_wide) {
  store_step(y, multiply_low(all->round, a, b), multiply_high(all->round, a, b), all, y_wide);
}

static NMP_INLINE vector load16(const void *from, size_t i, int wide) {
  return wide ? load((const int16_t *)from + i) : load_wide((const int8_t *)from + i);
}

/* The rest of an operand, or the only one, of a copy that has STEP elements. */
static NMP_INLINE vector load_rest(const void *from, size_t i, size_t n, size_t step, int wide) {
  int16_t copy[STEP] = {0};
  if (step == 0) {
    return set16(wide ? *(const int16_t *)from : *(const int8_t *)from);
  }
  memcpy(copy, (const uint8_t *)from + (i << wide), n << wide);
  return load16(copy, 0, wide);
}

#define ROWS(name, PART, A_WIDE, B_WIDE, Y_WIDE)                                                                    \
  static NMP_INLINE void name##_rows(void *y, const void *a, const void *b, size_t n, size_t a_step, size_t b_step, \
                                     const common *all) {                                                           \
    uint8_t *to = y;                                                                                                \
    size_t i = 0;                                                                                                   \
    const vector a_all = load_rest(a, 0, 0, 0, A_WIDE), b_all = load_rest(b, 0, 0, 0, B_WIDE);                      \
    for (; i + STEP <= n; i += STEP) {                                                                              \
      PART(to + (i << (Y_WIDE)), a_step ? load16(a, i, A_WIDE) : a_all, b_step ? load16(b, i, B_WIDE) : b_all, all, \
           Y_WIDE);                                                                                                 \
    }                                                                                                               \
    if (i < n) {                                                                                                    \
      int16_t copy[STEP];                                                                                           \
      PART(copy, load_rest(a, i, n - i, a_step, A_WIDE), load_rest(b, i, n - i, b_step, B_WIDE), all, Y_WIDE);      \
      memcpy(to + (i << (Y_WIDE)), copy, (n - i) << (Y_WIDE));                                                      \
    }                                                                                                               \
  }

/* name_<widths> is the loop for all other cases. */
#define FAST_SUM(name, SIGN, widths, A_WIDE, B_WIDE, Y_WIDE)                                                \
  static NMP_ADD(fast_##name##_##widths) {                                                                  \
    if (how->a_shift > SCALE_MAX || how->b_shift > SCALE_MAX || how->shift < 0 || how->shift > SHIFT_MAX) { \
      name##_##widths(y, a, b, n, how);                                                                     \
      return;                                                                                               \
    }                                                                                                       \
    const int32_t b_scale = (SIGN) * (1 << how->b_shift);                                                   \
    const common all = common_of(how->a_shift, b_scale, how->shift, how->lo, how->hi);                      \
    if (how->a_step == 1 && how->b_step == 1) {                                                             \
      const size_t done = !(A_WIDE) && !(B_WIDE) && !(Y_WIDE) ? sum_bytes(y, a, b, n, b_scale, how) : 0;    \
      sum_##widths##_rows((uint8_t *)y + (done << (Y_WIDE)), (const uint8_t *)a + (done << (A_WIDE)),       \
                          (const uint8_t *)b + (done << (B_WIDE)), n - done, 1, 1, &all);                   \
    } else {                                                                                                \
      sum_##widths##_rows(y, a, b, n, how->a_step, how->b_step, &all);                                      \
    }                                                                                                       \
  }

#define FAST_ADD(widths, A_WIDE, B_WIDE, Y_WIDE)       \
  ROWS(sum_##widths, sum_step, A_WIDE, B_WIDE, Y_WIDE) \
  FAST_SUM(add, 1, widths, A_WIDE, B_WIDE, Y_WIDE)     \
  FAST_SUM(sub, -1, widths, A_WIDE, B_WIDE, Y_WIDE)

#define FAST_MUL(widths, A_WIDE, B_WIDE, Y_WIDE)                         \
  ROWS(product_##widths, product_step, A_WIDE, B_WIDE, Y_WIDE)           \
  static NMP_MUL(fast_mul_##widths) {                                    \
    if (how->shift < 0 || how->shift > SHIFT_MAX) {                      \
      mul_##widths(y, a, b, n, how);                                     \
      return;                                                            \
    }                                                                    \
    const common all = common_of(0, 0, how->shift, how->lo, how->hi);    \
    product_##widths##_rows(y, a, b, n, how->a_step, how->b_step, &all); \
  }

#define FAST_REQUANTIZE(widths, X_WIDE, Y_WIDE)                                             \
  ROWS(shifted_##widths, sum_step, X_WIDE, X_WIDE, Y_WIDE)                                  \
  static NMP_REQUANTIZE(fast_requantize_##widths) {                                         \
    if (shift < -SCALE_MAX || shift > SHIFT_MAX) {                                          \
      requantize_##widths(y, x, n, shift, lo, hi);                                          \
      return;                                                                               \
    }                                                                                       \
    const common all = common_of(shift < 0 ? -shift : 0, 0, shift < 0 ? 0 : shift, lo, hi); \
    shifted_##widths##_rows(y, x, x, n, 1, 0, &all);                                        \
  }

#define EACH_WIDTHS(K) \
  K(8x8to8, 0, 0, 0)   \
  K(8x8to16, 0, 0, 1)  \
  K(8x16to8, 0, 1, 0)  \
  K(8x16to16, 0, 1, 1) \
  K(16x8to8, 1, 0, 0)  \
  K(16x8to16, 1, 0, 1) \
  K(16x16to8, 1, 1, 0) \
  K(16x16to16, 1, 1, 1)

EACH_WIDTHS(FAST_ADD)
EACH_WIDTHS(FAST_MUL)
FAST_REQUANTIZE(8to8, 0, 0)
FAST_REQUANTIZE(8to16, 0, 1)
FAST_REQUANTIZE(16to8, 1, 0)
FAST_REQUANTIZE(16to16, 1, 1)

/* The rest of a window's channels. */
static NMP_INLINE nmp_pixels channels_from(const nmp_pixels *window, size_t c, int wide) {
  nmp_pixels rest = *window;
  rest.x = (const uint8_t *)window->x + (c << wide);
  return rest;
}

/* Calls STEP_(p) for the address of channel c of every pixel. */
#define EACH_PIXEL(wide, ROWS_, COLUMNS_, STEP_)                                              \
  for (size_t r = 0; r < (ROWS_); r++) {                                                      \
    const uint8_t *p = (const uint8_t *)window->x + ((c + r * window->row_stride) << (wide)); \
    for (size_t column = 0; column < (COLUMNS_); column++) {                                  \
      STEP_;                                                                                  \
      p += window->column_stride << (wide);                                                   \
    }                                                                                         \
  }

/* Windows of 3 x 3 are known to the compiler. The last vector may have channels of the one before. */
#define FAST_MAX(bits, wide)                                                                                        \
  static NMP_INLINE void max_channels_##bits(uint8_t *y, const nmp_pixels *window, size_t c, size_t rows,           \
                                             size_t columns) {                                                      \
    vector most = load((const uint8_t *)window->x + (c << (wide)));                                                 \
    EACH_PIXEL(wide, rows, columns, most = max##bits(most, load(p)))                                                \
    save(y + (c << (wide)), most);                                                                                  \
  }                                                                                                                 \
  static NMP_INLINE void max_part_##bits(uint8_t *y, const nmp_pixels *window, size_t c, size_t bytes, size_t rows, \
                                         size_t columns) {                                                          \
    vector most = load_part((const uint8_t *)window->x + (c << (wide)), bytes);                                     \
    EACH_PIXEL(wide, rows, columns, most = max##bits(most, load_part(p, bytes)))                                    \
    save_part(y + (c << (wide)), most, bytes);                                                                      \
  }                                                                                                                 \
  static NMP_MAX(fast_max_##bits) {                                                                                 \
    const size_t step = 4 * LANES >> (wide), part = PART(n << (wide)) >> (wide);                                    \
    size_t c = 0;                                                                                                   \
    for (; c + step <= n && window->rows == 3 && window->columns == 3; c += step) {                                 \
      max_channels_##bits(y, window, c, 3, 3);                                                                      \
    }                                                                                                               \
    for (; c < n && n >= step; c += step) {                                                                         \
      c = c + step <= n ? c : n - step;                                                                             \
      max_channels_##bits(y, window, c, window->rows, window->columns);                                             \
    }                                                                                                               \
    for (; c < n && part > 0; c += part) {                                                                          \
      c = c + part <= n ? c : n - part;                                                                             \
      if (window->rows == 3 && window->columns == 3) {                                                              \
        max_part_##bits(y, window, c, part << (wide), 3, 3);                                                        \
      } else {                                                                                                      \
        max_part_##bits(y, window, c, part << (wide), window->rows, window->columns);                               \
      }                                                                                                             \
    }                                                                                                               \
    if (c < n) {                                                                                                    \
      const nmp_pixels rest = channels_from(window, c, wide);                                                       \
      max_##bits((uint8_t *)y + (c << (wide)), &rest, n - c);                                                       \
    }                                                                                                               \
  }

FAST_MAX(8, 0)
FAST_MAX(16, 1)

/* Vectors of LANES channels in int32, 4 at once; the last one may have channels of the one before. */
#define LONG_SUM(bits, wide, LOAD)                                                                        \
  static NMP_SUM(long_sum_##bits) {                                                                       \
    size_t c = 0;                                                                                         \
    for (; c + 4 * LANES <= n; c += 4 * LANES) {                                                          \
      vector sum[4] = {zero(), zero(), zero(), zero()};                                                   \
      EACH_PIXEL(                                                                                         \
          wide, window->rows, window->columns,                                                            \
          for (int i = 0; i < 4; i++) { sum[i] = add(sum[i], LOAD(p + ((size_t)i * LANES << (wide)))); }) \
      for (int i = 0; i < 4; i++) {                                                                       \
        save(sums + c + i * LANES, sum[i]);                                                               \
      }                                                                                                   \
    }                                                                                                     \
    for (; c < n && n >= LANES; c += LANES) {                                                             \
      vector sum = zero();                                                                                \
      c = c + LANES <= n ? c : n - LANES;                                                                 \
      EACH_PIXEL(wide, window->rows, window->columns, sum = add(sum, LOAD(p)))                            \
      save(sums + c, sum);                                                                                \
    }                                                                                                     \
    if (c < n) {                                                                                          \
      const nmp_pixels rest = channels_from(window, c, wide);                                             \
      sum_##bits(sums + c, &rest, n - c);                                                                 \
    }                                                                                                     \
  }

LONG_SUM(8, 0, load_longer)
LONG_SUM(16, 1, load_long)

/* 256 pixels of int8 add up in int16. */
static NMP_SUM(fast_sum_8) {
  size_t c = 0;
  for (; c + 2 * STEP <= n && window->rows * window->columns <= 256; c += 2 * STEP) {
    vector low = zero(), high = zero();
    EACH_PIXEL(0, window->rows, window->columns, low = add16(low, load_wide(p));
               high = add16(high, load_wide(p + STEP)))
    save_wide(sums + c, low);
    save_wide(sums + c + STEP, high);
  }
  for (; c + STEP <= n && window->rows * window->columns <= 256; c += STEP) {
    vector sum = zero();
    EACH_PIXEL(0, window->rows, window->columns, sum = add16(sum, load_wide(p)))
    save_wide(sums + c, sum);
  }
  if (c < n) {
    const nmp_pixels rest = channels_from(window, c, 0);
    long_sum_8(sums + c, &rest, n - c);
  }
}

static void elements(nmp_kernels *kernels) {
#ifdef NMP_X86
  kernels->crc = nmp_crc32_x86;
#endif
  kernels->max[0] = fast_max_8;
  kernels->max[1] = fast_max_16;
  kernels->sum[0] = fast_sum_8;
  kernels->sum[1] = long_sum_16;
#define SET_ADD(widths, A_WIDE, B_WIDE, Y_WIDE) kernels->add[A_WIDE][B_WIDE][Y_WIDE] = fast_add_##widths;
#define SET_SUB(widths, A_WIDE, B_WIDE, Y_WIDE) kernels->sub[A_WIDE][B_WIDE][Y_WIDE] = fast_sub_##widths;
#define SET_MUL(widths, A_WIDE, B_WIDE, Y_WIDE) kernels->mul[A_WIDE][B_WIDE][Y_WIDE] = fast_mul_##widths;
  EACH_WIDTHS(SET_ADD)
  EACH_WIDTHS(SET_SUB)
  EACH_WIDTHS(SET_MUL)
  kernels->requantize[0][0] = fast_requantize_8to8;
  kernels->requantize[0][1] = fast_requantize_8to16;
  kernels->requantize[1][0] = fast_requantize_16to8;
  kernels->requantize[1][1] = fast_requantize_16to16;
}
