#include "arch/cortex_m/mve.h"
#include "conv/patch.h"

#ifdef NMP_MVE

#define INLINE static inline __attribute__((always_inline))

/* Depthwise: eight channels of neighbouring output pixels that have the same taps inside of the input. The even
 * channels are in one vector of sums, the odd ones in another.
 *
 * The weights of the eight lie tap by tap as int16. Products of int16 weights and int16 pixels would not add up in 32
 * bits: such weights are 256 * high + low with 0 <= low < 256, and two sums are kept. As shifts are at least 9 then,
 * rsh(256 * h + l, s) = rsh(h + floor(l / 256), s - 8).
 *
 * Taps in the padding are left out: sums start at what they add, which is the same for all of those pixels.
 */
typedef struct eight {
  int32x4_t even_shift, odd_shift, even_bias, odd_bias; /* shifts: to the left */
  int16x8_t lo, hi;
  int16x8_t pad; /* what padding holds */
} eight;

/* The code below knows the offsets of both. */
typedef struct taps {
  const void *x, *w;                     /* the first tap of the first pixel */
  int32_t column, row, w_row;            /* bytes from tap to tap; from behind the last tap of a row to the next row */
  int32_t columns, rows, x_step, y_step; /* x_step, y_step: bytes from pixel to pixel */
  int32_t start[4][4];                   /* what sums start at: even channels, odd ones; the same of the low halves */
} taps;

#define TAP(LOAD_X)            \
  LOAD_X                       \
  "add %[p], %[column]\n"      \
  "vldrh.16 q1, [%[w]], #16\n" \
  "vmullb.s16 q2, q0, q1\n"    \
  "vadd.i32 q3, q3, q2\n"      \
  "vmullt.s16 q2, q0, q1\n"    \
  "vadd.i32 q4, q4, q2\n"
#define LOW_HALF               \
  "vldrh.16 q1, [%[w]], #16\n" \
  "vmullb.s16 q2, q0, q1\n"    \
  "vadd.i32 q5, q5, q2\n"      \
  "vmullt.s16 q2, q0, q1\n"    \
  "vadd.i32 q6, q6, q2\n"
#define START_LOW              \
  "vldrw.32 q5, [%[t], #68]\n" \
  "vldrw.32 q6, [%[t], #84]\n"
#define JOIN_HALVES       \
  "vshr.s32 q5, q5, #8\n" \
  "vshr.s32 q6, q6, #8\n" \
  "vadd.i32 q3, q3, q5\n" \
  "vadd.i32 q4, q4, q6\n"
#define PIXEL_8 "vldrb.s16 q0, [%[p]]\n"
#define PIXEL_16 "vldrh.16 q0, [%[p]]\n"
#define STORE_8 "vstrb.16 q3, [%[y]]\n"
#define STORE_16 "vstrh.16 q3, [%[y]]\n"

/* The taps of a row: any number, or three as most kernels have. */
#define COLUMNS(TAPS)     \
  "ldr lr, [%[t], #20]\n" \
  "dls lr, lr\n"          \
  "3:\n" TAPS "le lr, 3b\n"
#define THREE(TAPS) TAPS TAPS TAPS

#define DEPTHWISE(name, START, ROW, JOIN, STORE)                                                             \
  static void name(const eight *e, const taps *t, void *y, size_t pixels) {                                  \
    const void *x = t->x, *p, *w;                                                                            \
    const int32_t column = t->column;                                                                        \
    int32_t left;                                                                                            \
    __asm volatile(                                                                                          \
        "1: mov %[p], %[x]\n"                                                                                \
        "ldr %[w], [%[t], #4]\n"                                                                             \
        "ldr %[left], [%[t], #24]\n"                                                                         \
        "vldrw.32 q3, [%[t], #36]\n"                                                                         \
        "vldrw.32 q4, [%[t], #52]\n" START "2:\n" ROW                                                        \
        "ldr lr, [%[t], #12]\n"                                                                              \
        "add %[p], lr\n"                                                                                     \
        "ldr lr, [%[t], #16]\n"                                                                              \
        "add %[w], lr\n"                                                                                     \
        "subs %[left], #1\n"                                                                                 \
        "bne 2b\n" JOIN                                                                                      \
        "vldrw.32 q0, [%[e]]\n"                                                                              \
        "vldrw.32 q1, [%[e], #16]\n"                                                                         \
        "vldrw.32 q2, [%[e], #32]\n"                                                                         \
        "vldrw.32 q5, [%[e], #48]\n"                                                                         \
        "vqrshl.s32 q3, q3, q0\n"                                                                            \
        "vqrshl.s32 q4, q4, q1\n"                                                                            \
        "vqadd.s32 q3, q3, q2\n"                                                                             \
        "vqadd.s32 q4, q4, q5\n"                                                                             \
        "vldrh.16 q0, [%[e], #64]\n"                                                                         \
        "vldrh.16 q1, [%[e], #80]\n"                                                                         \
        "vqmovnb.s32 q3, q3\n"                                                                               \
        "vqmovnt.s32 q3, q4\n"                                                                               \
        "vmax.s16 q3, q3, q0\n"                                                                              \
        "vmin.s16 q3, q3, q1\n" STORE                                                                        \
        "ldrd %[w], lr, [%[t], #28]\n"                                                                       \
        "add %[x], %[w]\n"                                                                                   \
        "add %[y], lr\n"                                                                                     \
        "subs %[pixels], #1\n"                                                                               \
        "bne 1b\n"                                                                                           \
        : [x] "+&r"(x), [y] "+&l"(y), [p] "=&l"(p), [w] "=&r"(w), [left] "=&r"(left), [pixels] "+&r"(pixels) \
        : [e] "r"(e), [t] "r"(t), [column] "r"(column)                                                       \
        : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "lr", "cc", "memory");                                   \
  }
DEPTHWISE(depthwise_8to8, "", COLUMNS(TAP(PIXEL_8)), "", STORE_8)
DEPTHWISE(depthwise_three_8to8, "", THREE(TAP(PIXEL_8)), "", STORE_8)
DEPTHWISE(depthwise_8to16, "", COLUMNS(TAP(PIXEL_8)), "", STORE_16)
DEPTHWISE(depthwise_16to8, "", COLUMNS(TAP(PIXEL_16)), "", STORE_8)
DEPTHWISE(depthwise_16to16, "", COLUMNS(TAP(PIXEL_16)), "", STORE_16)
DEPTHWISE(depthwise_split_to8, START_LOW, COLUMNS(TAP(PIXEL_16) LOW_HALF), JOIN_HALVES, STORE_8)
DEPTHWISE(depthwise_split_to16, START_LOW, COLUMNS(TAP(PIXEL_16) LOW_HALF), JOIN_HALVES, STORE_16)

typedef void depthwise_fn(const eight *e, const taps *t, void *y, size_t pixels);

static inline int16x8_t load_eight(const void *x, int wide) {
  return wide ? vldrhq_s16((const int16_t *)x) : vldrbq_s16((const int8_t *)x);
}

/* Weights [C][taps] of eight channels to [taps][8], or [taps][high 8, low 8]. */
static void lay_out(const nmp_conv *c, size_t first) {
  const uint16x8_t places = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)c->k);
  int16_t *to = (int16_t *)c->scratch;
  for (size_t t = 0; t < c->k; t++, to += NMP_MVE_LANES) {
    const size_t from = first * c->k + t;
    const int16x8_t w = nmp_w_wide(c) ? vldrhq_gather_shifted_offset_s16((const int16_t *)c->w + from, places)
                                      : vldrbq_gather_offset_s16((const int8_t *)c->w + from, places);
    vstrhq_s16(to, nmp_mve_is_split(c) ? vshrq_n_s16(w, 8) : w);
    if (nmp_mve_is_split(c)) {
      to += NMP_MVE_LANES;
      vstrhq_s16(to, vandq_s16(w, vdupq_n_s16(255)));
    }
  }
}

static eight eight_of(const nmp_conv *c, size_t first) {
  const int16x8_t exponents =
      c->exponent_step ? vldrbq_s16(c->exponents + first) : vdupq_n_s16((int16_t)c->exponents[0]);
  const int16x8_t shift = vsubq_n_s16(exponents, (int16_t)(c->shift - (nmp_mve_is_split(c) ? 8 : 0)));
  int32x4x2_t bias;
  if (c->bias_bits == 32) {
    bias = vld2q_s32((const int32_t *)c->bias + first);
  } else {
    const int wide = c->bias_bits == 16;
    const int16x8_t b = load_eight((const uint8_t *)c->bias + (first << wide), wide);
    bias = (int32x4x2_t){{vmovlbq_s16(b), vmovltq_s16(b)}};
  }
  return (eight){.even_shift = vmovlbq_s16(shift),
                 .odd_shift = vmovltq_s16(shift),
                 .even_bias = bias.val[0],
                 .odd_bias = bias.val[1],
                 .lo = vdupq_n_s16((int16_t)c->lo),
                 .hi = vdupq_n_s16((int16_t)c->hi),
                 .pad = c->pad ? load_eight(nmp_padding(c, first), nmp_x_wide(c)) : vdupq_n_s16(0)};
}

/* The taps [first, last) of a window that are pixels; those before and after are padding. */
INLINE void clip(const nmp_axis *axis, int32_t position, int32_t *first, int32_t *last) {
  const int32_t start = nmp_pixel(axis, position, 0);
  if (start >= 0 && start + (axis->kernel - 1) * axis->dilation < axis->in) {
    *first = 0;
    *last = axis->kernel;
    return;
  }
  nmp_clip(axis, position, first, last);
}

/* Sums of taps in the padding: int8 weights alone; products of even and odd channels, and the same of the low
 * halves of split weights.
 */
typedef struct sums {
  int16x8_t weights;
  int32x4_t even, odd, low_even, low_odd;
} sums;

/* s and `runs` times n taps more, from the tap `first` on. */
INLINE sums add_padding(const nmp_conv *c, const eight *e, sums s, int32_t first, int32_t runs, int32_t run_step,
                        int32_t n, int32_t step) {
  const int32_t tap = NMP_MVE_LANES << nmp_mve_is_split(c);
  if (runs <= 0 || n <= 0) {
    return s;
  }
  for (const int16_t *run = (const int16_t *)c->scratch + first * tap; runs > 0; runs--, run += run_step * tap) {
    const int16_t *w = run;
    for (int32_t i = n; i > 0; i--, w += step * tap) {
      const int16x8_t v = vldrhq_s16(w);
      if (!nmp_w_wide(c)) {
        s.weights = vaddq_s16(s.weights, v);
        continue;
      }
      s.even = vaddq_s32(s.even, vmullbq_int_s16(e->pad, v));
      s.odd = vaddq_s32(s.odd, vmulltq_int_s16(e->pad, v));
      if (nmp_mve_is_split(c)) {
        const int16x8_t low = vldrhq_s16(w + NMP_MVE_LANES);
        s.low_even = vaddq_s32(s.low_even, vmullbq_int_s16(e->pad, low));
        s.low_odd = vaddq_s32(s.low_odd, vmulltq_int_s16(e->pad, low));
      }
    }
  }
  return s;
}

INLINE void start_at(const nmp_conv *c, const eight *e, sums s, taps *t) {
  vst1q_s32(t->start[0], nmp_w_wide(c) ? s.even : vmullbq_int_s16(e->pad, s.weights));
  vst1q_s32(t->start[1], nmp_w_wide(c) ? s.odd : vmulltq_int_s16(e->pad, s.weights));
  if (nmp_mve_is_split(c)) {
    vst1q_s32(t->start[2], s.low_even);
    vst1q_s32(t->start[3], s.low_odd);
  }
}

/* Columns [from, to) of the output, whose windows have the same taps inside, of all rows. y: of pixel 0. */
static void depthwise_columns(const nmp_conv *c, const eight *e, const uint8_t *image, uint8_t *y, int32_t from,
                              int32_t to) {
  static depthwise_fn *const table[3][2] = {{depthwise_8to8, depthwise_8to16},
                                            {depthwise_16to8, depthwise_16to16},
                                            {depthwise_split_to8, depthwise_split_to16}};
  static const int16_t zeros[2 * NMP_MVE_LANES] = {0};
  const int split = nmp_mve_is_split(c);
  const int32_t pixel = (int32_t)c->in << nmp_x_wide(c), line = c->h.in * pixel, tap = NMP_MVE_LANES * 2 << split,
                rows = c->v.kernel, columns = c->h.kernel;
  depthwise_fn *any = table[nmp_x_wide(c) + split][nmp_y_wide(c)], *run = any;
  int32_t left, right;
  clip(&c->h, from, &left, &right);
  taps t;
  t.column = c->h.dilation * pixel;
  t.row = c->v.dilation * line - (right - left) * c->h.dilation * pixel;
  t.w_row = (columns - (right - left)) * tap;
  t.x_step = c->h.stride * pixel;
  t.y_step = (int32_t)c->out << nmp_y_wide(c);
  image += nmp_pixel(&c->h, from, left) * pixel;
  y += from * t.y_step;
  const int32x4_t zero = vdupq_n_s32(0);
  sums sides = {.weights = vdupq_n_s16(0), .even = zero, .odd = zero, .low_even = zero, .low_odd = zero};
  if (c->pad == NULL) {
    start_at(c, e, sides, &t);
  } else {
    sides = add_padding(c, e, sides, 0, left, 1, rows, columns);
    sides = add_padding(c, e, sides, right, columns - right, 1, rows, columns);
  }
  for (int32_t oy = 0, top = -1, bottom = -1; oy < c->v.out; oy++, y += c->h.out * t.y_step) {
    int32_t first, last;
    clip(&c->v, oy, &first, &last);
    if (first != top || last != bottom) {
      top = first;
      bottom = last;
      if (c->pad) {
        sums s = add_padding(c, e, sides, left, top, columns, right - left, 1);
        s = add_padding(c, e, s, bottom * columns + left, rows - bottom, columns, right - left, 1);
        start_at(c, e, s, &t);
      }
      t.columns = right - left;
      t.rows = bottom - top;
      t.w = (const uint8_t *)c->scratch + (top * columns + left) * tap;
      if (t.columns == 0 || t.rows == 0) { /* nothing but padding */
        t.columns = t.rows = 1;
        t.w = zeros;
      }
      run = any == depthwise_8to8 && t.columns == 3 ? depthwise_three_8to8 : any;
    }
    t.x = t.w == zeros ? c->x : image + nmp_pixel(&c->v, oy, top) * line;
    run(e, &t, y, (size_t)(to - from));
  }
}

/* Eight channels of an image: the columns at its borders one by one. */
static void depthwise_image(const nmp_conv *c, const eight *e, const uint8_t *image, uint8_t *y) {
  int32_t begin, end;
  nmp_mve_full(&c->h, &begin, &end);
  for (int32_t x = 0; x < begin; x++) {
    depthwise_columns(c, e, image, y, x, x + 1);
  }
  if (begin < end) {
    depthwise_columns(c, e, image, y, begin, end);
  }
  for (int32_t x = end; x < c->h.out; x++) {
    depthwise_columns(c, e, image, y, x, x + 1);
  }
}

/* The last eight channels may overlap those before: they come to the same. */
void nmp_conv_mve_depthwise(const nmp_conv *c) {
  const size_t x_image = (size_t)c->v.in * (size_t)c->h.in * c->in << nmp_x_wide(c);
  const size_t y_image = (size_t)c->v.out * (size_t)c->h.out * c->out << nmp_y_wide(c);
  for (size_t done = 0; done < c->out; done += NMP_MVE_LANES) {
    const size_t first = done + NMP_MVE_LANES <= c->out ? done : c->out - NMP_MVE_LANES;
    const eight e = eight_of(c, first);
    const uint8_t *image = (const uint8_t *)c->x + (first << nmp_x_wide(c));
    uint8_t *y = (uint8_t *)c->y + (first << nmp_y_wide(c));
    lay_out(c, first);
    for (uint32_t i = 0; i < c->images; i++, image += x_image, y += y_image) {
      depthwise_image(c, &e, image, y);
    }
  }
}

#endif
