/* The inner loops that instruction sets have variants of. Every signature is declared once, here.
 *
 * An index [2] is a width: NMP_WIDE(bits), 0 for int8 and 1 for int16, of x, w or y in the order of the name's indices.
 * Strides and lengths count elements. Outputs do not overlap inputs, except that requantize, add, sub, mul, lookup and
 * interpolate may work in place (y == x, y == a or y == b, all of one width).
 */
#ifndef NMP_KERNELS_KERNELS_H
#define NMP_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/build.h"

#define NMP_WIDE(bits) NMP_ONE_WIDTH(NMP_ACTIVATION_BITS, (bits) == 16) /* of activations */
#define NMP_WIDE_WEIGHT(bits) NMP_ONE_WIDTH(NMP_WEIGHT_BITS, (bits) == 16)
#define NMP_ONE_WIDTH(only, wide) ((only) ? (only) == 16 : (wide)) /* a constant where a build has one width */

/* A sum of products is int32 when both factors are int8, else int64; at most NMP_K_MAX products keep it exact. */
#define NMP_K_MAX 131071
#define NMP_WIDE_SUM(x_wide, w_wide) ((x_wide) | (w_wide))

/* sums[r * channels + c] = sum over i < k of x[r * x_stride + i] * w[c * k + i] */
#define NMP_GEMM(name) \
  void name(void *sums, const void *x, size_t x_stride, const void *w, size_t k, size_t rows, size_t channels)

/* sums[c] = sum over t < taps of x[t][c] * w[t * n + c], c < n */
#define NMP_DEPTHWISE(name) void name(void *sums, const void *const *x, const void *w, size_t taps, size_t n)

/* y[r * y_stride + c] = sat(rsh(sums[r * channels + c], shift[c]) + bias[c]) */
#define NMP_SCALE(name)                                                                                    \
  void name(void *y, size_t y_stride, const void *sums, size_t rows, size_t channels, const int32_t *bias, \
            const int8_t *shift, int32_t lo, int32_t hi)

/* y[i] = sat(rsh(x[i], shift)) */
#define NMP_REQUANTIZE(name) void name(void *y, const void *x, size_t n, int shift, int32_t lo, int32_t hi)

/* y[i] = sat(rsh((a[i * a_step] << a_shift) + (b[i * b_step] << b_shift), shift)); steps are 0 or 1 */
typedef struct nmp_binary {
  size_t a_step, b_step;
  int a_shift, b_shift; /* 0..30, at least one is 0; mul: unused */
  int shift;
  int32_t lo, hi;
  int down; /* of a quotient alone: it is rounded down */
#if NMP_SMALL
  int a_wide, b_wide, y_wide; /* nmp_broadcast knows them */
#endif
} nmp_binary;
#define NMP_ADD(name) void name(void *y, const void *a, const void *b, size_t n, const nmp_binary *how)

/* sub: the same with a minus. mul: y[i] = sat(rsh(a[i * a_step] * b[i * b_step], shift)) */
#define NMP_MUL(name) void name(void *y, const void *a, const void *b, size_t n, const nmp_binary *how)

/* mul_offset is called as mul with the address of `how` in an nmp_moved; a and y are int8:
 * y[i] = sat(rsh(rsh((a[i * a_step] * 2^6 + offset_a) * b[i * b_step], shift) + offset_y, 6)), |offsets| <= 2^14
 */
#define NMP_OFFSET_BITS 6
typedef struct nmp_moved {
  nmp_binary how; /* first */
  int32_t offset_a, offset_y;
} nmp_moved;

/* x of int8: y[i] = table[x[i] + 128], a table of y's type */
#define NMP_LOOKUP(name) void name(void *y, const void *x, const void *table, size_t n, int32_t lo, int32_t hi)

/* The line between two of 2^(16 - k) + 1 samples, k from 0 to 7, p = x[i] + 32768 (FORMAT.md):
 * y[i] = sat(rsh(t[p >> k] * 2^k + (t[(p >> k) + 1] - t[p >> k]) * (p mod 2^k), k + 8))
 */
#define NMP_INTERPOLATE(name) \
  void name(void *y, const int16_t *x, const int32_t *t, size_t n, int k, int32_t lo, int32_t hi)

/* A window of rows x columns pixels of n channels; at most 65536 pixels, so that sums stay in int32. */
typedef struct nmp_pixels {
  const void *x;
  size_t rows, columns, row_stride, column_stride;
} nmp_pixels;

/* y[c] = the largest of the window's pixels in channel c, c < n */
#define NMP_MAX(name) void name(void *y, const nmp_pixels *window, size_t n)

/* sums[c] = the sum of the window's pixels in channel c, c < n */
#define NMP_SUM(name) void name(int32_t *sums, const nmp_pixels *window, size_t n)

/* y[i] = sat(rsh(sum over r < taps of x[r][i] * w[r], shift)), i < n, taps <= NMP_RESIZE_V_MAX; sums are below 2^47 */
#define NMP_RESIZE_V_MAX 4
#define NMP_RESIZE_V(name)                                                                                    \
  void name(void *y, const int32_t *const *x, const int32_t *w, size_t taps, size_t n, int shift, int32_t lo, \
            int32_t hi)

/* CRC-32 continued over data, as nmp_crc32 does */
#define NMP_CRC(name) uint32_t name(uint32_t crc, const uint8_t *data, size_t bytes)

/* y[i * y_stride + r] = x[r * x_stride + i], r < rows, i < n */
#define NMP_TRANSPOSE(name) void name(void *y, size_t y_stride, const void *x, size_t x_stride, size_t rows, size_t n)

/* z = rsh((n * x[i] - sum) * inverse, normalize), y[i] = sat(rsh(rsh(z * w[i * w_step], scale) + b[i * w_step], 8)),
 * i < count. |n * x[i] - sum| * inverse < 2^62, and z fits int32.
 */
typedef struct nmp_normalizer {
  int64_t n, sum, inverse;
  int normalize, scale; /* at least 0 */
  size_t w_step;        /* 0 or 1 */
  int32_t lo, hi;
} nmp_normalizer;
#define NMP_NORMALIZE(name) \
  void name(void *y, const void *x, const int32_t *w, const int32_t *b, size_t count, const nmp_normalizer *how)

/* The sum of x and that of squares, n <= 65536 */
#define NMP_MOMENTS(name) void name(int64_t *sum, int64_t *squares, const void *x, size_t n)
/* The largest of n > 0 elements of x. */
#define NMP_LARGEST(name) int32_t name(const void *x, size_t n)

/* e[i] = of most - x[i] >= 0, by its table; returns their sum. */
#define NMP_EXPONENTIALS(name) int64_t name(int32_t *e, const void *x, const int32_t *table, size_t n, int32_t most)

/* y[i] = sat(floor(((e[i] << up + 1) + sum) / (2 sum))), 0 <= e[i] <= 2^30 <= sum <= 2^46, up <= 16;
 * inverse = floor(2^62 / (2 sum)).
 */
#define NMP_QUOTIENTS(name) \
  void name(void *y, const int32_t *e, size_t n, int up, uint64_t sum, uint32_t inverse, int32_t lo, int32_t hi)

typedef NMP_NORMALIZE(nmp_normalize_fn);
typedef NMP_MOMENTS(nmp_moments_fn);
typedef NMP_LARGEST(nmp_largest_fn);
typedef NMP_EXPONENTIALS(nmp_exponentials_fn);
typedef NMP_QUOTIENTS(nmp_quotients_fn);

#if !NMP_FIXED_CPU
/* y[j * n + c] = sum over t < taps of x[(first[j] + t) * x_stride + c] * w[j * taps + t], c < n, j < count; sums fit
 * int32. There are `size` elements of x.
 */
typedef struct nmp_columns {
  const int32_t *first, *w;
  size_t taps, count, n, x_stride, size;
} nmp_columns;
#define NMP_RESIZE_H(name) void name(int32_t *y, const void *x, const nmp_columns *how)

typedef NMP_RESIZE_H(nmp_resize_h_fn);
#endif

#if NMP_DIVIDE_KERNEL
/* divide of int8 is called as add with the address of `how` in an nmp_divisors. y[i] is the quotient of
 * a[i * a_step] << a_shift and b[i * b_step] << b_shift, rounded half up and saturated; where b is 0, that end of the
 * range that has the sign of a, or 0. inverse[b + 128] = floor(2^31 / |b|) + 1, and 2^31 where b is 0.
 */
#define NMP_DIVISORS 256
typedef struct nmp_divisors {
  nmp_binary how; /* first */
  uint32_t inverse[NMP_DIVISORS];
} nmp_divisors;

static inline void nmp_invert(nmp_divisors *all) {
  const uint32_t unit = (uint32_t)1 << 31;
  for (int32_t b = -128; b < 128; b++) {
    all->inverse[b + 128] = b == 0 ? unit : unit / (uint32_t)(b < 0 ? -b : b) + 1;
  }
}
#endif

/* conv.h: the way of computing a convolution */
struct nmp_conv;
struct nmp_conv_kernel;
typedef const struct nmp_conv_kernel *nmp_conv_choose_fn(const struct nmp_conv *c); /* NULL: left out of this build */

typedef NMP_GEMM(nmp_gemm_fn);
typedef NMP_DEPTHWISE(nmp_depthwise_fn);
typedef NMP_SCALE(nmp_scale_fn);
typedef NMP_REQUANTIZE(nmp_requantize_fn);
typedef NMP_ADD(nmp_add_fn);
typedef NMP_MUL(nmp_mul_fn);
typedef NMP_LOOKUP(nmp_lookup_fn);
typedef NMP_INTERPOLATE(nmp_interpolate_fn);
typedef NMP_MAX(nmp_max_fn);
typedef NMP_SUM(nmp_sum_fn);
typedef NMP_RESIZE_V(nmp_resize_v_fn);
typedef NMP_CRC(nmp_crc_fn);
typedef NMP_TRANSPOSE(nmp_transpose_fn);

typedef struct nmp_kernels {
  nmp_gemm_fn *gemm[2][2];             /* [x][w] */
  nmp_depthwise_fn *depthwise[2][2];   /* [x][w] */
  nmp_scale_fn *scale[2][2];           /* [NMP_WIDE_SUM][y] */
  nmp_requantize_fn *requantize[2][2]; /* [x][y] */
  nmp_add_fn *add[2][2][2];            /* [a][b][y] */
  nmp_add_fn *sub[2][2][2];            /* [a][b][y] */
  nmp_mul_fn *mul[2][2][2];            /* [a][b][y] */
  nmp_mul_fn *mul_offset[2];           /* [b] */
  nmp_lookup_fn *lookup[2];            /* [y] */
  nmp_interpolate_fn *interpolate[2];  /* [y] */
  nmp_max_fn *max[2];                  /* [x] */
  nmp_sum_fn *sum[2];                  /* [x] */
  nmp_resize_v_fn *resize_v[2];        /* [y] */
  nmp_crc_fn *crc;
  nmp_transpose_fn *transpose[2];       /* [x] */
  nmp_normalize_fn *normalize[2][2];    /* [x][y] */
  nmp_moments_fn *moments[2];           /* [x] */
  nmp_largest_fn *largest[2];           /* [x] */
  nmp_exponentials_fn *exponentials[2]; /* [x] */
  nmp_quotients_fn *quotients[2];       /* [y] */
#if !NMP_FIXED_CPU
  nmp_resize_h_fn *resize_h[2]; /* [x] */
#endif
#if NMP_DIVIDE_KERNEL
  nmp_add_fn *divide[2]; /* [y] */
#endif
  nmp_conv_choose_fn *conv;
  uint8_t address; /* bytes of an address on their machine */
} nmp_kernels;

/* Fills every member. The other levels overwrite those that they do better. */
void nmp_kernels_portable(nmp_kernels *kernels);

/* Functions named by their widths, as a member's table. */
#define NMP_TABLE_1(name) {name##_8, name##_16}
#define NMP_TABLE_2(name)          \
  {                                \
      {name##_8x8, name##_8x16},   \
      {name##_16x8, name##_16x16}, \
  }
#define NMP_TABLE_2_TO(name)         \
  {                                  \
      {name##_8to8, name##_8to16},   \
      {name##_16to8, name##_16to16}, \
  }
#define NMP_TABLE_3(name)                                                       \
  {                                                                             \
      {{name##_8x8to8, name##_8x8to16}, {name##_8x16to8, name##_8x16to16}},     \
      {{name##_16x8to8, name##_16x8to16}, {name##_16x16to8, name##_16x16to16}}, \
  }

#if NMP_DIVIDE_KERNEL
#define NMP_PORTABLE_DIVIDE(prefix) .divide = NMP_TABLE_1(prefix##divide),
#else
#define NMP_PORTABLE_DIVIDE(prefix)
#endif

#if NMP_FIXED_CPU
#define NMP_PORTABLE_OF_HOSTS(prefix)
#else
#define NMP_PORTABLE_OF_HOSTS(prefix) .resize_h = NMP_TABLE_1(prefix##resize_h), NMP_PORTABLE_DIVIDE(prefix)
#endif

/* All portable kernels, as initializers of an nmp_kernels. */
#define NMP_PORTABLE_KERNELS(prefix)                                                                                  \
  NMP_PORTABLE_OF_HOSTS(prefix).gemm = NMP_TABLE_2(prefix##gemm), .depthwise = NMP_TABLE_2(prefix##depthwise),        \
  .scale = {{prefix##scale_32to8, prefix##scale_32to16}, {prefix##scale_64to8, prefix##scale_64to16}},                \
  .requantize = NMP_TABLE_2_TO(prefix##requantize), .add = NMP_TABLE_3(prefix##add), .sub = NMP_TABLE_3(prefix##sub), \
  .mul = NMP_TABLE_3(prefix##mul), .mul_offset = NMP_TABLE_1(prefix##mul_offset),                                     \
  .lookup = {prefix##lookup_8to8, prefix##lookup_8to16},                                                              \
  .interpolate = {prefix##interpolate_16to8, prefix##interpolate_16to16}, .max = NMP_TABLE_1(prefix##max),            \
  .sum = NMP_TABLE_1(prefix##sum), .transpose = NMP_TABLE_1(prefix##transpose),                                       \
  .normalize = NMP_TABLE_2_TO(prefix##normalize), .moments = NMP_TABLE_1(prefix##moments),                            \
  .largest = NMP_TABLE_1(prefix##largest), .exponentials = NMP_TABLE_1(prefix##exponentials),                         \
  .quotients = NMP_TABLE_1(prefix##quotients), .resize_v = {prefix##resize_v_to8, prefix##resize_v_to16},             \
  .crc = nmp_crc32, .conv = nmp_conv_portable, .address = sizeof(void *)

nmp_gemm_fn nmp_gemm_8x8, nmp_gemm_8x16, nmp_gemm_16x8, nmp_gemm_16x16;
nmp_depthwise_fn nmp_depthwise_8x8, nmp_depthwise_8x16, nmp_depthwise_16x8, nmp_depthwise_16x16;
nmp_scale_fn nmp_scale_32to8, nmp_scale_32to16, nmp_scale_64to8, nmp_scale_64to16;
nmp_requantize_fn nmp_requantize_8to8, nmp_requantize_8to16, nmp_requantize_16to8, nmp_requantize_16to16;
nmp_add_fn nmp_add_8x8to8, nmp_add_8x8to16, nmp_add_8x16to8, nmp_add_8x16to16;
nmp_add_fn nmp_add_16x8to8, nmp_add_16x8to16, nmp_add_16x16to8, nmp_add_16x16to16;
nmp_add_fn nmp_sub_8x8to8, nmp_sub_8x8to16, nmp_sub_8x16to8, nmp_sub_8x16to16;
nmp_add_fn nmp_sub_16x8to8, nmp_sub_16x8to16, nmp_sub_16x16to8, nmp_sub_16x16to16;
nmp_mul_fn nmp_mul_8x8to8, nmp_mul_8x8to16, nmp_mul_8x16to8, nmp_mul_8x16to16;
nmp_mul_fn nmp_mul_16x8to8, nmp_mul_16x8to16, nmp_mul_16x16to8, nmp_mul_16x16to16;
nmp_mul_fn nmp_mul_offset_8, nmp_mul_offset_16;
nmp_lookup_fn nmp_lookup_8to8, nmp_lookup_8to16;
nmp_interpolate_fn nmp_interpolate_16to8, nmp_interpolate_16to16;
nmp_max_fn nmp_max_8, nmp_max_16;
nmp_sum_fn nmp_sum_8, nmp_sum_16;
nmp_resize_v_fn nmp_resize_v_to8, nmp_resize_v_to16;
nmp_transpose_fn nmp_transpose_8, nmp_transpose_16;
nmp_normalize_fn nmp_normalize_8to8, nmp_normalize_8to16, nmp_normalize_16to8, nmp_normalize_16to16;
nmp_moments_fn nmp_moments_8, nmp_moments_16;
nmp_largest_fn nmp_largest_8, nmp_largest_16;
nmp_exponentials_fn nmp_exponentials_8, nmp_exponentials_16;
nmp_quotients_fn nmp_quotients_8, nmp_quotients_16;
nmp_crc_fn nmp_crc32;
#if !NMP_FIXED_CPU
nmp_resize_h_fn nmp_resize_h_8, nmp_resize_h_16;
#endif
#if NMP_DIVIDE_KERNEL
nmp_add_fn nmp_divide_8, nmp_divide_16;
#endif
nmp_conv_choose_fn nmp_conv_portable;

#endif
