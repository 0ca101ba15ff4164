/* Convolutions with the vectors of Cortex-M (MVE, "Helium").
 *
 * 1. Depthwise, 8 channels or more: eight channels of a pixel at once, tap by tap.
 * 2. Anything else is rows of k factors times rows of weights: pixels as they are where neighbours lie like that (1x1),
 *    else patches gathered into the scratch, a few at a time.
 */
#include "conv.h"

#if defined(__ARM_FEATURE_MVE)

#include <arm_mve.h>
#include <string.h>

#define PATCH_BYTES 512 /* of scratch, unless one patch is longer */
#define PATCHES 16
#define DEPTHWISE_TAPS 256 /* whose sums stay in 32 bits */
#define LANES 8            /* channels of a depthwise step */

/* What stays the same for all rows of x: the weights, shifts, biases and range of some channels. */
typedef struct pair {
  const void *first, *second;
} pair;
typedef struct layer {
  pair w01, w23; /* the weights of the first four channels */
  struct next {
    size_t hop, steps; /* bytes from where the loads of four channels have ended to the next four; what DOTS wants */
  } next;
  const int8_t *exponents;
  const void *bias;
  size_t fours; /* of channels, at least one */
  int32_t shift, lo, hi;
} layer;

/* Sixteen products of each of four channels, by vmladav (sums begin) or vmladava (they go on). */
#define STEP(MULTIPLY)                  \
  "vldrb.8 q0, [%[x]], #16\n"           \
  "vldrb.8 q1, [%[w0]], #16\n" MULTIPLY \
  ".s8 %[a], q0, q1\n"                  \
  "vldrb.8 q2, [%[w1]], #16\n" MULTIPLY \
  ".s8 %[b], q0, q2\n"                  \
  "vldrb.8 q1, [%[w2]], #16\n" MULTIPLY \
  ".s8 %[c], q0, q1\n"                  \
  "vldrb.8 q2, [%[w3]], #16\n" MULTIPLY ".s8 %[d], q0, q2\n"

/* lr: k. The loop is predicated by the elements that are left in lr, so k need not be a multiple of 16. */
#define DOTS_ANY     \
  "mov %[a], #0\n"   \
  "mov %[b], #0\n"   \
  "mov %[c], #0\n"   \
  "mov %[d], #0\n"   \
  "dlstp.8 lr, lr\n" \
  "3:\n" STEP("vmladava") "letp lr, 3b\n"

/* lr: k / 64 - 1. */
#define DOTS_64S \
  STEP("vmladav") STEP("vmladava") STEP("vmladava") STEP("vmladava")     \
  "wls lr, lr, 4f\n"                                                     \
  "3:\n"                                                                 \
  STEP("vmladava") STEP("vmladava") STEP("vmladava") STEP("vmladava")    \
  "le lr, 3b\n"                                                          \
  "4:\n"

#define BIAS_8 "vldrb.s32 q2, [%[bias]], #4\n"
#define BIAS_16 "vldrh.s32 q2, [%[bias]], #8\n"
#define BIAS_32 "vldrw.32 q2, [%[bias]], #16\n"
#define Y_8 "vstrb.32 q0, [%[y]], #4\n"
#define Y_16 "vstrh.32 q0, [%[y]], #8\n"

/* One row of int8 factors times int8 weights of all channels, four at a time. Loads and stores of less than a vector
 * take their address from a low register; accumulators are even ones.
 */
#define ROW_8X8(name, DOTS, LOAD_BIAS, STORE)                                                                       \
  static void name(const layer *l, const void *row, void *y) {                                                      \
    const void *w0 = l->w01.first, *w1 = l->w01.second, *w2 = l->w23.first, *w3 = l->w23.second, *x;                \
    const void *bias = l->bias;                                                                                     \
    const int8_t *exponents = l->exponents;                                                                         \
    const struct next next = l->next;                                                                               \
    size_t fours = l->fours;                                                                                        \
    int32_t a, b, c, d;                                                                                             \
    const int32x4_t shift = vdupq_n_s32(l->shift), lo = vdupq_n_s32(l->lo), hi = vdupq_n_s32(l->hi);                \
    __asm volatile(                                                                                                 \
        "ldr lr, %[steps]\n"                                                                                        \
        "b 2f\n"                                                                                                    \
        "1: ldrd %[x], lr, %[next]\n"                                                                               \
        "add %[w0], %[x]\n"                                                                                         \
        "add %[w1], %[x]\n"                                                                                         \
        "add %[w2], %[x]\n"                                                                                         \
        "add %[w3], %[x]\n"                                                                                         \
        "2: ldr %[x], %[row]\n" DOTS                                                                                \
        "vldrb.s32 q1, [%[exponents]], #4\n"                                                                        \
        "vmov d0, %[a], %[b]\n"                                                                                     \
        "vmov d1, %[c], %[d]\n"                                                                                     \
        "vsub.s32 q1, q1, %q[shift]\n" LOAD_BIAS                                                                    \
        "vqrshl.s32 q0, q0, q1\n"                                                                                   \
        "vqadd.s32 q0, q0, q2\n"                                                                                    \
        "vmax.s32 q0, q0, %q[lo]\n"                                                                                 \
        "vmin.s32 q0, q0, %q[hi]\n" STORE                                                                           \
        "subs %[fours], #1\n"                                                                                       \
        "bne 1b\n"                                                                                                  \
        : [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3), [a] "=&Te"(a), [b] "=&Te"(b), [c] "=&Te"(c),  \
          [d] "=&Te"(d), [x] "=&r"(x), [y] "+l"(y), [exponents] "+l"(exponents), [bias] "+l"(bias),                 \
          [fours] "+r"(fours)                                                                                       \
        : [row] "m"(row), [next] "m"(next), [steps] "m"(next.steps), [shift] "w"(shift), [lo] "w"(lo), [hi] "w"(hi) \
        : "q0", "q1", "q2", "lr", "cc", "memory");                                                                  \
  }

ROW_8X8(row_bias8_y8, DOTS_ANY, BIAS_8, Y_8)
ROW_8X8(row_bias8_y16, DOTS_ANY, BIAS_8, Y_16)
ROW_8X8(row_bias16_y8, DOTS_ANY, BIAS_16, Y_8)
ROW_8X8(row_bias16_y16, DOTS_ANY, BIAS_16, Y_16)
ROW_8X8(row_bias32_y8, DOTS_ANY, BIAS_32, Y_8)
ROW_8X8(row_bias32_y16, DOTS_ANY, BIAS_32, Y_16)
ROW_8X8(row_64_bias8_y8, DOTS_64S, BIAS_8, Y_8)
ROW_8X8(row_64_bias16_y8, DOTS_64S, BIAS_16, Y_8)

/* One exponent for all channels is repeated at the start of the scratch. */
static size_t repeated(const nmp_conv *c) {
  return c->exponent_step || (c->x_wide | c->w_wide) ? 0 : (c->out + 15) / 16 * 16;
}

typedef void row_fn(const layer *l, const void *x, void *y);

/* Many channels of a common kind have a faster loop. */
static int in_64s(const nmp_conv *c) {
  return c->k % 64 == 0 && c->bias_bits < 32 && !c->y_wide;
}

static row_fn *row_for(const nmp_conv *c) {
  static row_fn *const any[3][2] = {
      {row_bias8_y8, row_bias8_y16}, {row_bias16_y8, row_bias16_y16}, {row_bias32_y8, row_bias32_y16}};
  return in_64s(c) ? c->bias_bits == 8 ? row_64_bias8_y8 : row_64_bias16_y8 : any[c->bias_bits / 16][c->y_wide];
}

static layer layer_of(const nmp_conv *c, size_t first, size_t fours) {
  const size_t k = c->k;
  const int8_t *w = (const int8_t *)c->w + first * k;
  return (layer){{w, w + k},
                 {w + 2 * k, w + 3 * k},
                 {4 * k - (k + 15) / 16 * 16, in_64s(c) ? k / 64 - 1 : k},
                 c->exponent_step ? c->exponents + first : (const int8_t *)c->scratch,
                 (const uint8_t *)c->bias + first * (c->bias_bits / 8),
                 fours,
                 c->shift,
                 c->lo,
                 c->hi};
}

/* Rows of one to three channels: as if they were four, apart from where the results go. */
static void rows_of_few(const nmp_conv *c, const uint8_t *x, size_t rows, size_t first, size_t count, uint8_t *y) {
  row_fn *row = row_for(c);
  layer l = layer_of(c, first, 1);
  int8_t exponents[4];
  int32_t bias[4], four[4];
  const size_t bytes = c->bias_bits / 8;
  for (size_t i = 0; i < 4; i++) {
    const size_t channel = first + (i < count ? i : 0);
    exponents[i] = c->exponents[channel * c->exponent_step];
    memcpy((uint8_t *)bias + i * bytes, (const uint8_t *)c->bias + channel * bytes, bytes);
  }
  l.exponents = exponents;
  l.bias = bias;
  l.w01.second = count > 1 ? l.w01.second : l.w01.first;
  l.w23 = (pair){count > 2 ? l.w23.first : l.w01.first, l.w01.first};
  for (size_t r = 0; r < rows; r++, x += c->k, y += c->out << c->y_wide) {
    row(&l, x, four);
    memcpy(y, four, count << c->y_wide);
  }
}

/* Both factors int8. The last four channels may overlap those before: they come to the same. */
static void rows_narrow(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel) {
  row_fn *row = row_for(c);
  const uint8_t *from = x;
  uint8_t *y = (uint8_t *)c->y + ((pixel * c->out + first) << c->y_wide);
  if (count < 4) {
    rows_of_few(c, from, rows, first, count, y);
    return;
  }
  layer l = layer_of(c, first, count / 4);
  for (size_t r = 0; r < rows; r++) {
    row(&l, from + r * c->k, y + (r * c->out << c->y_wide));
  }
  if (count % 4) {
    l = layer_of(c, first + count - 4, 1);
    y += (count - 4) << c->y_wide;
    for (size_t r = 0; r < rows; r++) {
      row(&l, from + r * c->k, y + (r * c->out << c->y_wide));
    }
  }
}

static inline int32x4_t clamp(int32x4_t v, int32_t lo, int32_t hi) {
  return vminq_s32(vmaxq_s32(v, vdupq_n_s32(lo)), vdupq_n_s32(hi));
}

/* Sums of products in 64 bits, of two rows and two channels: x0 w0, x0 w1, x1 w0, x1 w1. */
#define DOTS_WIDE(name, LOAD_X, IN_X, LOAD_W, IN_W)                                                                      \
  static inline void name(int64_t sums[4], const void *x0, const void *x1, const void *w0, const void *w1, size_t k) {   \
    int64_t a = 0, b = 0, c = 0, d = 0;                                                                                  \
    register size_t n __asm("lr") = k; /* the other registers are full */                                                \
    __asm volatile(                                                                                                    \
        "dlstp.16 lr, lr\n"                                                                                            \
        "1: " LOAD_X("q0", "[%[x0]]") LOAD_W("q1", "[%[w0]]")                                                          \
        "vmlaldava.s16 %Q[a], %R[a], q0, q1\n" LOAD_W("q2", "[%[w1]]")                                                 \
        "vmlaldava.s16 %Q[b], %R[b], q0, q2\n" LOAD_X("q0", "[%[x1]]")                                                 \
        "vmlaldava.s16 %Q[c], %R[c], q0, q1\n"                                                                         \
        "vmlaldava.s16 %Q[d], %R[d], q0, q2\n"                                                                         \
        "letp lr, 1b\n"                                                                                                \
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x0] IN_X(x0), [x1] IN_X(x1), [w0] IN_W(w0),             \
          [w1] IN_W(w1), "+r"(n)                                                                                       \
        :                                                                                                              \
        : "q0", "q1", "q2", "memory"); \
    sums[0] = a;                                                                                                         \
    sums[1] = b;                                                                                                         \
    sums[2] = c;                                                                                                         \
    sums[3] = d;                                                                                                         \
  }
#define LOAD_8(q, from) "vldrb.s16 " q ", " from ", #8\n"
#define LOAD_16(q, from) "vldrh.16 " q ", " from ", #16\n"

DOTS_WIDE(dots_8x16, LOAD_8, "+l", LOAD_16, "+r") /* loads that widen take a low register */
DOTS_WIDE(dots_16x8, LOAD_16, "+r", LOAD_8, "+l")
DOTS_WIDE(dots_16x16, LOAD_16, "+r", LOAD_16, "+r")

/* One factor int16, or both: two rows and two channels at a time, which fill a vector of results. */
static void rows_wide(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel) {
  const size_t x_row = c->k << c->x_wide, w_row = c->k << c->w_wide;
  const uint32x4_t places = {0, 1, c->out, c->out + 1};
  for (size_t done = 0; done < count; done += 2) {
    const size_t channel = first + done, next = count - done > 1;
    const uint8_t *w0 = (const uint8_t *)c->w + channel * w_row, *w1 = w0 + (next ? w_row : 0), *from = x;
    const int32_t s0 = nmp_conv_shift(c, channel), s1 = nmp_conv_shift(c, channel + next);
    const int32_t b0 = nmp_conv_bias(c, channel), b1 = nmp_conv_bias(c, channel + next);
    const int32x4_t bias = {b0, b1, b0, b1};
    uint8_t *y = (uint8_t *)c->y + ((pixel * c->out + channel) << c->y_wide);
    for (size_t r = 0; r < rows; r += 2, from += 2 * x_row, y += 2 * c->out << c->y_wide) {
      const size_t below = rows - r > 1;
      const mve_pred16_t live = (mve_pred16_t)((next ? 0xFFFF : 0x0F0F) & (below ? 0xFFFF : 0x00FF));
      const uint8_t *x1 = from + (below ? x_row : 0);
      int64_t sums[4];
      if (c->x_wide && c->w_wide) {
        dots_16x16(sums, from, x1, w0, w1, c->k);
      } else if (c->x_wide) {
        dots_16x8(sums, from, x1, w0, w1, c->k);
      } else {
        dots_8x16(sums, from, x1, w0, w1, c->k);
      }
      const int32x4_t scaled = {(int32_t)sqrshrl(sums[0], s0), (int32_t)sqrshrl(sums[1], s1),
                                (int32_t)sqrshrl(sums[2], s0), (int32_t)sqrshrl(sums[3], s1)};
      const int32x4_t v = clamp(vqaddq_s32(scaled, bias), c->lo, c->hi);
      if (c->y_wide) {
        vstrhq_scatter_shifted_offset_p_s32((int16_t *)(void *)y, places, v, live);
      } else {
        vstrbq_scatter_offset_p_s32((int8_t *)y, places, v, live);
      }
    }
  }
}

static void run_rows(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel) {
  if (c->x_wide | c->w_wide) {
    rows_wide(c, x, rows, first, count, pixel);
  } else {
    rows_narrow(c, x, rows, first, count, pixel);
  }
}

static inline void copy(void *to, const void *from, size_t bytes) {
  __asm volatile(
      "wlstp.8 lr, %[bytes], 2f\n"
      "1: vldrb.8 q0, [%[from]], #16\n"
      "vstrb.8 q0, [%[to]], #16\n"
      "letp lr, 1b\n"
      "2:\n"
      : [to] "+r"(to), [from] "+r"(from)
      : [bytes] "r"(bytes)
      : "q0", "lr", "memory");
}

/* `rows` runs of bytes that begin `line` bytes apart, one after another. */
static inline void copy_rows(void *to, const void *from, size_t run, size_t line, int32_t rows) {
  const void *at;
  const size_t back = run - (run + 15) / 16 * 16;
  __asm volatile(
      "1: mov %[at], %[from]\n"
      "add %[from], %[line]\n"
      "dlstp.8 lr, %[run]\n"
      "2: vldrb.8 q0, [%[at]], #16\n"
      "vstrb.8 q0, [%[to]], #16\n"
      "letp lr, 2b\n"
      "add %[to], %[back]\n"
      "subs %[rows], #1\n"
      "bne 1b\n"
      : [to] "+r"(to), [from] "+r"(from), [at] "=&r"(at), [rows] "+r"(rows)
      : [run] "r"(run), [line] "r"(line), [back] "r"(back)
      : "q0", "lr", "cc", "memory");
}

static inline void zero(void *to, size_t bytes) {
  __asm volatile(
      "wlstp.8 lr, %[bytes], 2f\n"
      "1: vstrb.8 %q[zeros], [%[to]], #16\n"
      "letp lr, 1b\n"
      "2:\n"
      : [to] "+r"(to)
      : [bytes] "r"(bytes), [zeros] "w"(vdupq_n_u8(0))
      : "lr", "memory");
}

/* An output pixel, and where its image starts in x. */
typedef struct place {
  const uint8_t *image;
  int32_t y, x;
} place;

static void step(const nmp_conv *c, place *at) {
  if (++at->x == c->h.out) {
    at->x = 0;
    if (++at->y == c->v.out) {
      at->y = 0;
      at->image += (size_t)c->v.in * (size_t)c->h.in * c->in << c->x_wide;
    }
  }
}

/* Taps of `tap` bytes that are padding. */
static uint8_t *fill(const nmp_conv *c, size_t skip, uint8_t *to, int32_t taps, size_t tap) {
  const size_t bytes = (size_t)taps * tap;
  if (c->pad == NULL) {
    zero(to, bytes);
    return to + bytes;
  }
  for (; taps > 0; taps--, to += tap) {
    copy(to, (const uint8_t *)c->pad + skip, tap);
  }
  return to;
}

/* The taps [first, last) of a window that are pixels; those before and after are padding. */
static void clip(const nmp_axis *axis, int32_t position, int32_t *first, int32_t *last) {
  const int32_t start = nmp_pixel(axis, position, 0);
  if (start >= 0 && start + (axis->kernel - 1) * axis->dilation < axis->in) {
    *first = 0;
    *last = axis->kernel;
    return;
  }
  nmp_clip(axis, position, first, last);
  *first = *first < axis->kernel ? *first : axis->kernel;
  *last = *last > *first ? *last : *first;
}

/* The patch of one output pixel and group: KH * KW * in / groups elements. */
static void gather(const nmp_conv *c, place at, size_t group, uint8_t *to) {
  const size_t pixel = (size_t)c->in << c->x_wide, tap = pixel / c->groups, skip = group * tap;
  const int joined = c->h.dilation == 1 && c->groups == 1;
  int32_t left, right;
  clip(&c->h, at.x, &left, &right);
  for (int32_t ky = 0; ky < c->v.kernel; ky++) {
    const int32_t y = nmp_pixel(&c->v, at.y, ky);
    if (!nmp_inside(&c->v, y)) {
      to = fill(c, skip, to, c->h.kernel, tap);
      continue;
    }
    const int32_t x = nmp_pixel(&c->h, at.x, left);
    const uint8_t *from = at.image + ((size_t)y * (size_t)c->h.in + (size_t)x) * pixel + skip;
    to = fill(c, skip, to, left, tap);
    if (joined) {
      const size_t run = (size_t)(right - left) * tap;
      copy(to, from, run);
      to += run;
    } else {
      for (int32_t kx = left; kx < right; kx++, to += tap, from += (size_t)c->h.dilation * pixel) {
        copy(to, from, tap);
      }
    }
    to = fill(c, skip, to, c->h.kernel - right, tap);
  }
}

static size_t patch_bytes(const nmp_conv *c) {
  return (size_t)c->k << c->x_wide;
}

/* Patches that are gathered at a time. */
static size_t patches(const nmp_conv *c) {
  const size_t fit = PATCH_BYTES / patch_bytes(c), least = 1 + (c->x_wide | c->w_wide);
  return fit < least ? least : fit < PATCHES ? fit : PATCHES;
}

/* The output pixels [first, last) of an axis whose windows hold no padding. */
static void full(const nmp_axis *axis, int32_t *first, int32_t *last) {
  const int32_t end = axis->in + axis->before - (axis->kernel - 1) * axis->dilation; /* of the places to start at */
  *first = (axis->before + axis->stride - 1) / axis->stride;
  *first = *first < axis->out ? *first : axis->out;
  *last = end > 0 ? (end - 1) / axis->stride + 1 : 0;
  *last = *last > *first ? *last < axis->out ? *last : axis->out : *first;
}

static void run_patches(const nmp_conv *c) {
  const size_t pixels = nmp_conv_pixels(c), most = patches(c), outs = c->out / c->groups, bytes = patch_bytes(c);
  const size_t pixel_bytes = (size_t)c->in << c->x_wide, line = (size_t)c->h.in * pixel_bytes;
  int32_t left = 0, right = 0, top = 0, bottom = 0; /* of the pixels whose patches are whole rows of x */
  uint8_t *patch = (uint8_t *)c->scratch + repeated(c);
  place at = {c->x, 0, 0};
  if (c->h.dilation == 1 && c->groups == 1) {
    full(&c->h, &left, &right);
    full(&c->v, &top, &bottom);
  }
  for (size_t pixel = 0, rows; pixel < pixels; pixel += rows) {
    const place from = at;
    rows = pixels - pixel < most ? pixels - pixel : most;
    for (size_t group = 0; group < c->groups; group++) {
      uint8_t *to = patch;
      at = from;
      for (size_t r = 0; r < rows; r++, step(c, &at), to += bytes) {
        if (at.x >= left && at.x < right && at.y >= top && at.y < bottom) {
          const size_t first =
              (size_t)nmp_pixel(&c->v, at.y, 0) * line + (size_t)nmp_pixel(&c->h, at.x, 0) * pixel_bytes;
          copy_rows(to, at.image + first, (size_t)c->h.kernel * pixel_bytes, (size_t)c->v.dilation * line, c->v.kernel);
        } else {
          gather(c, at, group, to);
        }
      }
      run_rows(c, patch, rows, group * outs, outs, pixel);
    }
  }
}

/* Depthwise: eight channels of neighbouring output pixels that have the same taps inside of the input. The even
 * channels are in one vector of sums, the odd ones in another.
 *
 * The weights of the eight lie tap by tap as int16. Products of int16 weights and int16 pixels would not add up in 32
 * bits: such weights are 256 * high + low with 0 <= low < 256, and two sums are kept. As shifts are at least 9 then,
 * rsh(256 * h + l, s) = rsh(h + floor(l / 256), s - 8).
 */
typedef struct eight {
  int32x4_t even_shift, odd_shift, even_bias, odd_bias; /* shifts: to the left */
  int16x8_t lo, hi;
} eight;

typedef struct taps {
  const void *x, *w;                     /* the first tap of the first pixel */
  int32_t column, row, w_row;            /* bytes from tap to tap; from behind the last tap of a row to the next row */
  int32_t columns, rows, x_step, y_step; /* x_step, y_step: bytes from pixel to pixel */
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
#define START_LOW     \
  "vmov.i32 q5, #0\n" \
  "vmov.i32 q6, #0\n"
#define JOIN_HALVES       \
  "vshr.s32 q5, q5, #8\n" \
  "vshr.s32 q6, q6, #8\n" \
  "vadd.i32 q3, q3, q5\n" \
  "vadd.i32 q4, q4, q6\n"
#define PIXEL_8 "vldrb.s16 q0, [%[p]]\n"
#define PIXEL_16 "vldrh.16 q0, [%[p]]\n"
#define STORE_8 "vstrb.16 q3, [%[y]]\n"
#define STORE_16 "vstrh.16 q3, [%[y]]\n"

#define DEPTHWISE(name, START, TAPS, JOIN, STORE)                                                         \
  static void name(const eight *e, const taps *t, void *y, size_t pixels) {                               \
    const void *x = t->x, *p, *w;                                                                         \
    const int32_t column = t->column;                                                                     \
    int32_t left;                                                                                         \
    __asm volatile(                                                                                       \
        "1: mov %[p], %[x]\n"                                                                             \
        "ldr %[w], [%[t], #4]\n"                                                                          \
        "ldr %[left], [%[t], #24]\n"                                                                      \
        "vmov.i32 q3, #0\n"                                                                               \
        "vmov.i32 q4, #0\n" START                                                                         \
        "2: ldr lr, [%[t], #20]\n"                                                                        \
        "dls lr, lr\n"                                                                                    \
        "3:\n" TAPS                                                                                       \
        "le lr, 3b\n"                                                                                     \
        "ldr lr, [%[t], #12]\n"                                                                           \
        "add %[p], lr\n"                                                                                  \
        "ldr lr, [%[t], #16]\n"                                                                           \
        "add %[w], lr\n"                                                                                  \
        "subs %[left], #1\n"                                                                              \
        "bne 2b\n" JOIN                                                                                   \
        "vldrw.32 q0, [%[e]]\n"                                                                           \
        "vldrw.32 q1, [%[e], #16]\n"                                                                      \
        "vldrw.32 q2, [%[e], #32]\n"                                                                      \
        "vldrw.32 q5, [%[e], #48]\n"                                                                      \
        "vqrshl.s32 q3, q3, q0\n"                                                                         \
        "vqrshl.s32 q4, q4, q1\n"                                                                         \
        "vqadd.s32 q3, q3, q2\n"                                                                          \
        "vqadd.s32 q4, q4, q5\n"                                                                          \
        "vldrh.16 q0, [%[e], #64]\n"                                                                      \
        "vldrh.16 q1, [%[e], #80]\n"                                                                      \
        "vqmovnb.s32 q3, q3\n"                                                                            \
        "vqmovnt.s32 q3, q4\n"                                                                            \
        "vmax.s16 q3, q3, q0\n"                                                                           \
        "vmin.s16 q3, q3, q1\n" STORE                                                                     \
        "ldrd %[w], lr, [%[t], #28]\n"                                                                    \
        "add %[x], %[w]\n"                                                                                \
        "add %[y], lr\n"                                                                                  \
        "subs %[pixels], #1\n"                                                                            \
        "bne 1b\n"                                                                                        \
        : [x] "+r"(x), [y] "+l"(y), [p] "=&l"(p), [w] "=&r"(w), [left] "=&r"(left), [pixels] "+r"(pixels) \
        : [e] "r"(e), [t] "r"(t), [column] "r"(column)                                                    \
        : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "lr", "cc", "memory");                                \
  }
DEPTHWISE(depthwise_8to8, "", TAP(PIXEL_8), "", STORE_8)
DEPTHWISE(depthwise_8to16, "", TAP(PIXEL_8), "", STORE_16)
DEPTHWISE(depthwise_16to8, "", TAP(PIXEL_16), "", STORE_8)
DEPTHWISE(depthwise_16to16, "", TAP(PIXEL_16), "", STORE_16)
DEPTHWISE(depthwise_split_to8, START_LOW, TAP(PIXEL_16) LOW_HALF, JOIN_HALVES, STORE_8)
DEPTHWISE(depthwise_split_to16, START_LOW, TAP(PIXEL_16) LOW_HALF, JOIN_HALVES, STORE_16)

typedef void depthwise_fn(const eight *e, const taps *t, void *y, size_t pixels);

/* Both factors int16. */
static int is_split(const nmp_conv *c) {
  return c->x_wide && c->w_wide;
}

static inline int16x8_t load_eight(const void *x, int wide) {
  return wide ? vldrhq_s16((const int16_t *)x) : vldrbq_s16((const int8_t *)x);
}

/* Weights [C][taps] of eight channels to [taps][8], or [taps][high 8, low 8]. */
static void lay_out(const nmp_conv *c, size_t first) {
  const uint16x8_t places = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)c->k);
  int16_t *to = (int16_t *)c->scratch;
  for (size_t t = 0; t < c->k; t++, to += LANES) {
    const size_t from = first * c->k + t;
    const int16x8_t w = c->w_wide ? vldrhq_gather_shifted_offset_s16((const int16_t *)c->w + from, places)
                                  : vldrbq_gather_offset_s16((const int8_t *)c->w + from, places);
    vstrhq_s16(to, is_split(c) ? vshrq_n_s16(w, 8) : w);
    if (is_split(c)) {
      to += LANES;
      vstrhq_s16(to, vandq_s16(w, vdupq_n_s16(255)));
    }
  }
}

static eight eight_of(const nmp_conv *c, size_t first) {
  const int16x8_t exponents =
      c->exponent_step ? vldrbq_s16(c->exponents + first) : vdupq_n_s16((int16_t)c->exponents[0]);
  const int16x8_t shift = vsubq_n_s16(exponents, (int16_t)(c->shift - (is_split(c) ? 8 : 0)));
  int32x4x2_t bias;
  if (c->bias_bits == 32) {
    bias = vld2q_s32((const int32_t *)c->bias + first);
  } else {
    const int wide = NMP_WIDE(c->bias_bits);
    const int16x8_t b = load_eight((const uint8_t *)c->bias + (first << wide), wide);
    bias = (int32x4x2_t){{vmovlbq_s16(b), vmovltq_s16(b)}};
  }
  return (eight){vmovlbq_s16(shift), vmovltq_s16(shift),          bias.val[0],
                 bias.val[1],        vdupq_n_s16((int16_t)c->lo), vdupq_n_s16((int16_t)c->hi)};
}

/* Columns [from, to) of the output, whose windows have the same taps inside, of all rows. y: of pixel 0. */
static void depthwise_columns(const nmp_conv *c, const eight *e, const uint8_t *image, uint8_t *y, int32_t from,
                              int32_t to) {
  static depthwise_fn *const table[3][2] = {{depthwise_8to8, depthwise_8to16},
                                            {depthwise_16to8, depthwise_16to16},
                                            {depthwise_split_to8, depthwise_split_to16}};
  static const int16_t zeros[2 * LANES] = {0};
  const int split = is_split(c);
  const int32_t pixel = (int32_t)c->in << c->x_wide, line = c->h.in * pixel, tap = LANES * 2 << split;
  int32_t left, right, top, bottom;
  clip(&c->h, from, &left, &right);
  taps t = {.column = c->h.dilation * pixel,
            .row = c->v.dilation * line - (right - left) * c->h.dilation * pixel,
            .w_row = (c->h.kernel - (right - left)) * tap,
            .x_step = c->h.stride * pixel,
            .y_step = (int32_t)c->out << c->y_wide};
  image += nmp_pixel(&c->h, from, left) * pixel;
  y += from * t.y_step;
  for (int32_t oy = 0; oy < c->v.out; oy++, y += c->h.out * t.y_step) {
    clip(&c->v, oy, &top, &bottom);
    t.columns = right - left;
    t.rows = bottom - top;
    t.x = image + nmp_pixel(&c->v, oy, top) * line;
    t.w = (const uint8_t *)c->scratch + (top * c->h.kernel + left) * tap;
    if (t.columns == 0 || t.rows == 0) { /* nothing but padding */
      t.columns = t.rows = 1;
      t.x = c->x;
      t.w = zeros;
    }
    table[c->x_wide + split][c->y_wide](e, &t, y, (size_t)(to - from));
  }
}

/* Eight channels of an image: the columns at its borders one by one. */
static void depthwise_image(const nmp_conv *c, const eight *e, const uint8_t *image, uint8_t *y) {
  int32_t begin, end;
  full(&c->h, &begin, &end);
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
static void run_depthwise(const nmp_conv *c) {
  const size_t x_image = (size_t)c->v.in * (size_t)c->h.in * c->in << c->x_wide;
  const size_t y_image = (size_t)c->v.out * (size_t)c->h.out * c->out << c->y_wide;
  for (size_t done = 0; done < c->out; done += LANES) {
    const size_t first = done + LANES <= c->out ? done : c->out - LANES;
    const eight e = eight_of(c, first);
    const uint8_t *image = (const uint8_t *)c->x + (first << c->x_wide);
    uint8_t *y = (uint8_t *)c->y + (first << c->y_wide);
    lay_out(c, first);
    for (uint32_t i = 0; i < c->images; i++, image += x_image, y += y_image) {
      depthwise_image(c, &e, image, y);
    }
  }
}

static int by_eight(const nmp_conv *c) {
  return nmp_conv_is_depthwise(c) && c->out >= LANES;
}

static size_t scratch(const nmp_conv *c) {
  const size_t bytes = by_eight(c)             ? c->k * LANES * sizeof(int16_t) << is_split(c)
                       : nmp_conv_is_direct(c) ? repeated(c)
                                               : repeated(c) + patches(c) * patch_bytes(c);
  return (bytes + 15) / 16 * 16;
}

static void run(const nmp_conv *c, size_t task, size_t tasks) {
  (void)task;
  (void)tasks;
  if (by_eight(c)) {
    run_depthwise(c);
    return;
  }
  if (repeated(c)) {
    memset(c->scratch, c->exponents[0], repeated(c));
  }
  if (nmp_conv_is_direct(c)) {
    run_rows(c, c->x, nmp_conv_pixels(c), 0, c->out, 0);
  } else {
    run_patches(c);
  }
}

static int least_shift(const nmp_conv *c) {
  int least = nmp_conv_shift(c, 0);
  for (uint32_t i = 1; i < c->out && c->exponent_step; i++) {
    const int shift = nmp_conv_shift(c, i);
    least = shift < least ? shift : least;
  }
  return least;
}

/* What is not exact in 32 bits is left to the portable kernels: sums that are still too large after their shift, biases
 * that could bring back what a shift to the left has saturated, and depthwise padding other than zero.
 */
static int claims(const nmp_conv *c) {
  if (by_eight(c) && (c->pad || c->k > DEPTHWISE_TAPS)) {
    return 0;
  }
  if (c->x_wide && c->w_wide && by_eight(c)) {
    return least_shift(c) >= 9;
  }
  if ((c->x_wide | c->w_wide) && !by_eight(c)) {
    const int shift = least_shift(c);
    return shift >= 16 || (shift >= 0 && c->k < (2u << shift));
  }
  return c->bias_bits < 32 || least_shift(c) >= 0;
}

const nmp_conv_kernel *nmp_conv_mve(const nmp_conv *c) {
  static const nmp_conv_kernel mve = {NULL, NULL, scratch, NULL, run};
  return claims(c) ? &mve : nmp_conv_portable(c);
}

#endif
