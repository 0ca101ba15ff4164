/* Dense convolution on x86-64 and AArch64: a matrix product whose left side is read where it lies.
 *
 * Input rows are copied once, with their padding, into a band of the scratch, in the form that the product wants: on
 * x86-64 int8 as uint8 (plus 128) for the byte instructions, otherwise int16; int16 times int16 as two planes, x = 256
 * high + low. Every output pixel then sees segments of neighbouring elements, at the same distances from its own
 * address. Weights are packed in panels: for one grain (some bytes) of a segment after the other, those of all channels
 * of the panel.
 */
#ifndef NMP_CONV_BANDS_H
#define NMP_CONV_BANDS_H

#include "aarch64.h"
#include "conv.h"
#include "x86.h"

#if defined(NMP_X86) || defined(NMP_AARCH64)
#define NMP_BANDS

#define NMP_GRAIN 4     /* bytes of a grain on x86-64: 4 elements or 2 */
#define NMP_ROWS_MAX 14 /* pixels of a tile */
#define NMP_NR_MAX 32   /* channels of a panel */

/* Products of int16 with 9 and 16 bits that fit into int32 for certain, two a grain. */
#define NMP_GRAINS_MAX 255

/* What precedes the weights of a panel. Lanes without a channel are zero.
 *
 * A panel is proven when for any x its sums fit into 32 bits together with bias and half a unit of y: they start with
 * these and are shifted at the end, and whatever wraps on the way does not matter. The sums of two planes are joined as
 * high + floor(low / 256), to be shifted by 8 less.
 */
typedef struct nmp_panel {
  int32_t start[NMP_NR_MAX]; /* of the sum, or of that of high parts */
  int32_t shift[NMP_NR_MAX];
  int32_t bias[NMP_NR_MAX];
  int32_t unit[NMP_NR_MAX]; /* conv_join.h: what the sum is shifted by as it is joined, the first part of its shift */
  int8_t scale_shift[NMP_NR_MAX]; /* as in the file */
  int32_t proven, lowest;         /* lowest: a weight is the least of its type */
  int32_t unused[6];              /* so that the weights are aligned */
} nmp_panel;

/* Some pixels of y times the channels of a panel. */
typedef struct nmp_tile {
  int32_t sums[NMP_ROWS_MAX * NMP_NR_MAX]; /* [pixel][plane][lane] */
  int64_t wide[NMP_ROWS_MAX * NMP_NR_MAX]; /* [pixel][lane] */
  const uint8_t *const *x;                 /* where the first segment of each pixel is, in the band */
  size_t plane;                            /* bytes to the plane of low parts */
  const uint32_t *segments;                /* distances in bytes from x */
  size_t segment_count, grains;            /* of a segment */
  const nmp_panel *panel;
} nmp_tile;

/* Fills sums, or wide. */
typedef void nmp_tile_fn(nmp_tile *t);

/* y[r * c->out + i] = sat(rsh(sum[r * lanes + i], shift[i]) + bias[i]), i < n <= lanes */
typedef void nmp_finish_fn(const nmp_conv *c, const nmp_tile *t, size_t rows, size_t lanes, size_t n, void *y);

typedef struct nmp_way {
  size_t rows;                               /* at most so many pixels in a tile */
  nmp_tile_fn *const (*tiles)[NMP_ROWS_MAX]; /* [vectors - 1][pixels - 1] */
  nmp_finish_fn *finish;
} nmp_way;

/* How to multiply by the weights of a file. */
typedef struct nmp_product {
  uint8_t element; /* bytes of an element in the band */
  uint8_t planes;  /* 1 or 2 */
  uint8_t zero;    /* what each byte of a zero is in the band */
  uint8_t lanes;   /* channels of a vector; a panel has two, or one at the end */
  uint8_t grain;   /* bytes of x that an instruction takes of a pixel */
  void (*load)(void *to, const void *x, size_t n, size_t plane);
  nmp_way ways[2]; /* [proven] */
} nmp_product;

size_t nmp_bands_packed(const nmp_conv *c, const nmp_product *p);
void nmp_bands_pack(const nmp_conv *c, const nmp_product *p, void *to);
size_t nmp_bands_scratch(const nmp_conv *c, const nmp_product *p);
size_t nmp_bands_tasks(const nmp_conv *c, size_t threads);
void nmp_bands_run(const nmp_conv *c, const nmp_product *p, size_t task, size_t tasks);

/* By kernels->scale, from sums. */
nmp_finish_fn nmp_bands_finish_any;

/* A kernel `name` that computes by the product of that name with _product. */
#define NMP_BANDS_KERNEL(name)                                    \
  static size_t name##_packed(const nmp_conv *c) {                \
    return nmp_bands_packed(c, &name##_product);                  \
  }                                                               \
  static void name##_pack(const nmp_conv *c, void *to) {          \
    nmp_bands_pack(c, &name##_product, to);                       \
  }                                                               \
  static size_t name##_scratch(const nmp_conv *c) {               \
    return nmp_bands_scratch(c, &name##_product);                 \
  }                                                               \
  static void name##_run(const nmp_conv *c, size_t t, size_t n) { \
    nmp_bands_run(c, &name##_product, t, n);                      \
  }                                                               \
  static const nmp_conv_kernel name = {name##_packed, name##_pack, name##_scratch, nmp_bands_tasks, name##_run};

#endif
#endif
