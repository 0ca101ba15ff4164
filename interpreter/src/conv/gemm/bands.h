/* Dense convolution on x86-64 and AArch64: a matrix product whose left side is read where it lies.
 *
 * Input rows are copied once, with their padding, into a band of the scratch, in the form that the product wants: on
 * x86-64 int8 as uint8 (plus 128) for the byte instructions, otherwise int16; int16 times int16 as two planes, x = 256
 * high + low. Every output pixel then sees segments of neighbouring elements, at the same distances from its own
 * address. Weights are packed in panels: for one grain (some bytes) of a segment after the other, those of all channels
 * of the panel.
 */
#ifndef NMP_CONV_GEMM_BANDS_H
#define NMP_CONV_GEMM_BANDS_H

#include "conv/conv.h"

#if !NMP_FIXED_CPU && defined(__GNUC__) /* for the levels of PCs */
#define NMP_BANDS

#define NMP_GRAIN 4     /* bytes of a grain on x86-64: 4 elements or 2 */
#define NMP_ROWS_MAX 14 /* pixels of a tile */
#define NMP_NR_MAX 32   /* channels of a panel */
#define NMP_RUN_MAX 8   /* pixels of a run */
#define NMP_BLOCK_VECTORS 28

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
  int32_t unit[NMP_NR_MAX];       /* join.h: what the sum is shifted by as it is joined, the first part of its shift */
  int8_t scale_shift[NMP_NR_MAX]; /* as in the file */
  int32_t proven, lowest;         /* lowest: a weight is the least of its type, if the product asks */
  int32_t highest;                /* a weight is at least 127.5 * 256, if the product asks */
  int32_t unused[5];              /* so that the weights are aligned */
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

/* Pixels of y times the channels of a proven panel. Pixels are two runs of the same length, whose neighbours are
 * equally far from each other; the runs may overlap, or be one. Some such blocks follow each other.
 */
typedef struct nmp_block {
  const uint8_t *x[2];      /* where the first pixel of each run begins, in the band */
  uint8_t *y[2];            /* its first channel of the panel */
  size_t x_step, y_step;    /* bytes to the next pixel */
  size_t count;             /* blocks */
  size_t x_hop, y_hop;      /* bytes to the next block */
  size_t plane;             /* bytes to the plane of low parts */
  const uint32_t *segments; /* distances in bytes from x */
  size_t segment_count, grains;
  const nmp_panel *panel;
  uintptr_t next; /* the weights that are used later begin here; so many bytes of them are fetched with a grain */
  size_t next_step;
  size_t channels;
  int32_t lo, hi;
  int y_wide;
} nmp_block;

typedef void nmp_block_fn(const nmp_block *b);

typedef struct nmp_blocks {
  size_t most[2];                          /* pixels of a run, by vectors - 1 */
  nmp_block_fn *functions[2][NMP_RUN_MAX]; /* [vectors - 1][pixels of a run - 1] */
  size_t runs;                             /* of a block: 2, or only the first */
} nmp_blocks;

#define NMP_STRIP 4 /* vectors of channels */

/* A pixel, all that there is, times strips of proven channels. Packed are the starts and the shifts of all channels,
 * then their weights, for one grain after the other those of all channels of the strip; the last strip may be smaller.
 */
typedef struct nmp_single {
  const uint8_t *x;
  size_t plane, grains;
  const int32_t *start;
  const int8_t *shift;
  const uint8_t *w;
  uint8_t *y;
  size_t channels;
  int32_t lo, hi;
  int y_wide;
} nmp_single;

typedef void nmp_single_fn(const nmp_single *s);

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
  nmp_way ways[2];          /* [proven] */
  const nmp_blocks *blocks; /* instead, when all panels are proven; NULL: none */
  nmp_single_fn *single;    /* instead, for one pixel; NULL: none */
  int single_as_is;         /* that reads x as it is */
  int extremes;             /* its tiles ask for lowest and highest of a panel */
} nmp_product;

/* The convolution as bands, segments and panels. A line is a row of output pixels; a single pixel where the pixels of x
 * are the rows of the matrix as they are.
 */
typedef struct nmp_shape {
  nmp_axis v, h;
  uint32_t images;
  int32_t v_hop, h_hop;                    /* rows and pixels of x from one of the band to the next */
  size_t width;                            /* pixels of a band's row */
  size_t row;                              /* elements of it */
  size_t segments, per_segment;            /* elements */
  size_t grains;                           /* of a segment */
  size_t panels, panel_bytes, group_bytes; /* of a group; of all its panels */
  size_t lines, plane;                     /* of a band; bytes */
  int whole;                               /* rows of x are rows of the band */
  int proven;                              /* all panels are, and the product has blocks; known once packed */
  int single;                              /* it is one pixel, and proven, too: panels are strips */
} nmp_shape;

typedef struct nmp_band {
  const nmp_conv *c;
  const nmp_product *p;
  const nmp_shape *s;
  uint8_t *bytes;
  size_t plane; /* bytes */
  int zeroed;   /* what is padding is there already */
} nmp_band;

#define NMP_BANDS_L1 16384u /* bytes of weights that are used for one tile after the other */

static inline size_t nmp_bands_align(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/* Packed are the shape, the distances of segments, and the panels. */
static inline size_t nmp_segments_at(void) {
  return nmp_bands_align(sizeof(nmp_shape));
}

static inline size_t nmp_panels_at(const nmp_shape *s) {
  return nmp_segments_at() + nmp_bands_align(s->segments * sizeof(uint32_t));
}

/* The panels [first, last) of all groups times the lines of a band, by the product's blocks. */
void nmp_blocks_multiply(const nmp_band *b, size_t first, size_t last, size_t lines, uint8_t *y);

/* What bands.c does for a single pixel. Packs only if all channels are proven, and returns whether they are. */
int nmp_single_pack(const nmp_conv *c, const nmp_product *p, nmp_shape *s, uint8_t *to);
void nmp_single_run(const nmp_conv *c, const nmp_product *p, size_t task, size_t tasks);

/* Whether a channel is proven; and if so the start of its sum, modulo 2^32, and its shift. */
int nmp_bands_prove(const nmp_conv *c, const nmp_product *p, size_t channel, int32_t *start, int32_t *shift);

/* A segment's weights of some channels, from number `at` of the first one on, as grains of `step` bytes. */
void nmp_bands_pack_segment(const nmp_conv *c, const nmp_product *p, const nmp_shape *s, size_t at, size_t channels,
                            uint8_t *to, size_t step);

/* How many of n the tasks before this one have. */
static inline size_t nmp_bands_share(size_t n, size_t task, size_t tasks) {
  return tasks == 1 ? n * task : n * task / tasks;
}

size_t nmp_bands_packed(const nmp_conv *c, const nmp_product *p);
void nmp_bands_pack(const nmp_conv *c, const nmp_product *p, void *to);
size_t nmp_bands_scratch(const nmp_conv *c, const nmp_product *p);
size_t nmp_bands_tasks(const nmp_conv *c, size_t threads);
void nmp_bands_run(const nmp_conv *c, const nmp_product *p, size_t task, size_t tasks);
void nmp_bands_rows(const nmp_conv *c, const nmp_product *p, size_t first, size_t last);

/* By kernels->scale, from sums. */
nmp_finish_fn nmp_bands_finish_any;

/* A kernel `name` that computes by the product of that name with _product. */
#define NMP_BANDS_KERNEL(name)                                            \
  static size_t name##_packed(const nmp_conv *c) {                        \
    return nmp_bands_packed(c, &name##_product);                          \
  }                                                                       \
  static void name##_pack(const nmp_conv *c, void *to) {                  \
    nmp_bands_pack(c, &name##_product, to);                               \
  }                                                                       \
  static size_t name##_scratch(const nmp_conv *c) {                       \
    return nmp_bands_scratch(c, &name##_product);                         \
  }                                                                       \
  static void name##_run(const nmp_conv *c, size_t t, size_t n) {         \
    nmp_bands_run(c, &name##_product, t, n);                              \
  }                                                                       \
  static void name##_rows(const nmp_conv *c, size_t first, size_t last) { \
    nmp_bands_rows(c, &name##_product, first, last);                      \
  }                                                                       \
  static const nmp_conv_kernel name = {.packed = name##_packed,           \
                                       .pack = name##_pack,               \
                                       .scratch = name##_scratch,         \
                                       .tasks = nmp_bands_tasks,          \
                                       .run = name##_run,                 \
                                       .rows = name##_rows,               \
                                       .pitched = 1};

#endif
#endif
