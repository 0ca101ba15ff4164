/* Dense convolution on x86-64, AArch64 and WebAssembly: a matrix product whose left side is read where it lies
 * (docs/kernels.md). This is what a level gives, its tiles, blocks and epilogues, and what it gets: an nmp_conv_kernel.
 *
 *   shape.h        the convolution as padded rows, segments and panels, with their sizes
 *   pack.h         weights and start values as panels
 *   load.h         padded rows from rows of the input
 *   run.h          the loops over padded rows, panels and tiles, and their shares of a task
 *   split_words.h  int16 times int16 with two sums of 32 bits
 */
#ifndef NMP_CONV_GEMM_GEMM_H
#define NMP_CONV_GEMM_GEMM_H

#include "conv/conv.h"

#if !NMP_FIXED_CPU && defined(__GNUC__) /* for the levels of PCs */
#define NMP_HAS_GEMM

#define NMP_K_GROUP 4         /* bytes of a k-group, but of AArch64: 4 elements or 2 */
#define NMP_TILE_PIXELS 14    /* of a tile, at most */
#define NMP_PANEL_CHANNELS 32 /* of a panel, at most */
#define NMP_RUN_PIXELS 8      /* of a run, at most */
#define NMP_BLOCK_VECTORS 28  /* sums of a block, at most */

/* Products of int16 with 9 and 16 bits that fit into int32 for certain, two a k-group. */
#define NMP_K_GROUPS_MAX 255

/* Head of a panel, before its weights. Lanes without a channel are zero.
 *
 * fits_int32: for any x the sums of all channels fit into 32 bits together with bias and half a unit of y. They start
 * with these and are shifted at the end, and whatever wraps on the way does not matter. The sums of split planes are
 * joined as high + floor(low / 256), to be shifted by 8 less.
 */
typedef struct nmp_gemm_panel {
  int32_t start[NMP_PANEL_CHANNELS]; /* of the sum, or of that of high parts */
  int32_t shift[NMP_PANEL_CHANNELS];
  int32_t bias[NMP_PANEL_CHANNELS];
  int32_t unit[NMP_PANEL_CHANNELS];       /* split words: the first part of the shift, as the sum is joined;
                                             split bytes that fit: of the sum of low parts */
  int8_t scale_shift[NMP_PANEL_CHANNELS]; /* as in the file */
  int32_t fits_int32;
  int32_t lowest;    /* k-groups 2 i and 2 i + 1 have the least weight of its type in one place, if the product asks */
  int64_t apart;     /* bit i: products of k-groups 4 i to 4 i + 3 of all segments may not fit together into the type of
                        a square, if the product asks; the last bit is that of all that follow */
  int32_t highest;   /* a weight is at least 127.5 * 256, if the product asks */
  int32_t unused[3]; /* so that the weights are aligned */
} nmp_gemm_panel;

/* Some pixels of y times the channels of a panel. */
typedef struct nmp_gemm_tile {
  int32_t sums[NMP_TILE_PIXELS * NMP_PANEL_CHANNELS]; /* [plane][pixel][lane] */
  int64_t wide[NMP_TILE_PIXELS * NMP_PANEL_CHANNELS]; /* [pixel][lane] */
  const uint8_t *const *x;                            /* where the first segment of each pixel is, in the padded rows */
  size_t plane;                                       /* bytes to the plane of low parts */
  const uint32_t *segments;                           /* distances in bytes from x */
  size_t segment_count, k_groups;                     /* of a segment */
  const nmp_gemm_panel *panel;
} nmp_gemm_tile;

/* Fills sums, or wide. */
typedef void nmp_gemm_tile_fn(nmp_gemm_tile *t);

/* y[r * c->pitch + i] = sat(rsh(sum[r * lanes + i], shift[i]) + bias[i]), r < pixels, i < n <= lanes */
typedef void nmp_gemm_epilogue_fn(const nmp_conv *c, const nmp_gemm_tile *t, size_t pixels, size_t lanes, size_t n,
                                  void *y);

/* Pixels of y times the channels of a panel that fits_int32, as far as stored bytes. Pixels are two runs of the same
 * length, whose neighbours are equally far from each other; the runs may overlap, or be one. Some such blocks follow
 * each other.
 */
typedef struct nmp_gemm_block {
  const uint8_t *x[2];      /* where the first pixel of each run begins, in the padded rows */
  uint8_t *y[2];            /* its first channel of the panel */
  size_t x_step, y_step;    /* bytes to the next pixel */
  size_t count;             /* blocks */
  size_t x_hop, y_hop;      /* bytes to the next block */
  size_t panels, panel_hop; /* all of that by some panels, one after the other; bytes to the next panel */
  size_t plane;             /* bytes to the plane of low parts */
  const uint32_t *segments; /* distances in bytes from x */
  size_t segment_count, k_groups;
  const nmp_gemm_panel *panel;
  uintptr_t next; /* the weights that are used later begin here; so many bytes of them are fetched with a k-group */
  size_t next_step;
  size_t channels;
  int32_t lo, hi;
  int y_wide;
} nmp_gemm_block;

typedef void nmp_gemm_block_fn(const nmp_gemm_block *b);

typedef struct nmp_gemm_blocks {
  size_t most[2];                                  /* pixels of a run, by vectors - 1 */
  nmp_gemm_block_fn *functions[2][NMP_RUN_PIXELS]; /* [vectors - 1][pixels of a run - 1] */
  size_t runs;                                     /* of a block: 2, or only the first */
  int panels;                                      /* they know panels of a block; or one at a time */
} nmp_gemm_blocks;

#define NMP_STRIP 4 /* vectors of channels */

/* gemv: the only pixel times strips of channels whose sums all fit into 32 bits. Packed are the starts and the shifts
 * of all channels, then their weights, for one k-group after the other those of all channels of the strip; the last
 * strip may be smaller.
 */
typedef struct nmp_gemv {
  const uint8_t *x;
  size_t plane, k_groups;
  const int32_t *start;
  const int8_t *shift;
  const uint8_t *w;
  uint8_t *y;
  size_t channels;
  int32_t lo, hi;
  int y_wide;
} nmp_gemv;

typedef void nmp_gemv_fn(const nmp_gemv *v);

typedef struct nmp_gemm_tiles {
  size_t pixels;                                         /* of a tile, at most */
  nmp_gemm_tile_fn *const (*functions)[NMP_TILE_PIXELS]; /* [vectors - 1][pixels - 1] */
  nmp_gemm_epilogue_fn *epilogue;
} nmp_gemm_tiles;

/* n bytes, a multiple of 16, of each of four channels that are `pitch` bytes apart, as k-groups of 4 bytes side by side
 * that are `step` bytes apart.
 */
typedef void nmp_gemm_pack_fn(uint8_t *to, size_t step, const uint8_t *w, size_t pitch, size_t n);

/* The panels [first, last) of all groups times the lines whose padded rows are there. The first line goes to y. */
struct nmp_padded;
typedef void nmp_gemm_lines_fn(const struct nmp_padded *padded, size_t first, size_t last, size_t lines, uint8_t *y);

/* Way in which x and w are multiplied. */
typedef struct nmp_gemm_product {
  uint8_t element;  /* bytes of an element in the padded rows */
  uint8_t planes;   /* 1, or 2 split planes */
  uint8_t zero;     /* what each byte of a zero is in the padded rows */
  uint8_t low;      /* likewise in the plane of low parts */
  uint8_t bytes;    /* split bytes: words of w are packed as high bytes and low ones, 16 of each at a time */
  uint8_t lanes;    /* channels of a vector; a panel has two, or one at the end */
  uint8_t k_group;  /* bytes of x that an instruction takes of a pixel */
  uint8_t k_groups; /* those of a segment are a multiple of so many; 0: any */
  uint8_t pixels;   /* up to one less of them are read behind those that there are */
  void (*load)(void *to, const void *x, size_t n, size_t plane); /* n elements of the padded rows */
  nmp_gemm_tiles tiles[2];                                       /* [fits_int32] */
  const nmp_gemm_blocks *blocks;                                 /* instead, when all panels fit; NULL: none */
  const nmp_gemm_blocks *exact; /* likewise by sums of 64 bits, when some do not fit but all vectors are whole */
  nmp_gemm_lines_fn *lines;     /* instead of both; NULL: none */
  nmp_gemv_fn *gemv;            /* instead, for one pixel; NULL: none */
  int gemv_as_is;               /* that reads x as it is */
  int extremes;                 /* its tiles ask for lowest, highest and apart of a panel */
  int patches;                  /* windows with short rows are copied */
  int pairs;                    /* two k-groups of a channel lie together */
  nmp_gemm_pack_fn *pack_four;  /* of channels whose elements are packed as they are stored; NULL: two at a time */
} nmp_gemm_product;

size_t nmp_gemm_packed(const nmp_conv *c, const nmp_gemm_product *p);
void nmp_gemm_pack(const nmp_conv *c, const nmp_gemm_product *p, void *to);
size_t nmp_gemm_scratch(const nmp_conv *c, const nmp_gemm_product *p);
size_t nmp_gemm_tasks(const nmp_conv *c, size_t threads);
void nmp_gemm_run(const nmp_conv *c, const nmp_gemm_product *p, size_t task, size_t tasks);
void nmp_gemm_rows(const nmp_conv *c, const nmp_gemm_product *p, size_t first, size_t last);

/* By kernels->scale, from sums. */
nmp_gemm_epilogue_fn nmp_gemm_epilogue_any;

/* A kernel `name` that computes by the product of that name with _product. */
#define NMP_GEMM_KERNEL(name)                                             \
  static size_t name##_packed(const nmp_conv *c) {                        \
    return nmp_gemm_packed(c, &name##_product);                           \
  }                                                                       \
  static void name##_pack(const nmp_conv *c, void *to) {                  \
    nmp_gemm_pack(c, &name##_product, to);                                \
  }                                                                       \
  static size_t name##_scratch(const nmp_conv *c) {                       \
    return nmp_gemm_scratch(c, &name##_product);                          \
  }                                                                       \
  static void name##_run(const nmp_conv *c, size_t t, size_t n) {         \
    nmp_gemm_run(c, &name##_product, t, n);                               \
  }                                                                       \
  static void name##_rows(const nmp_conv *c, size_t first, size_t last) { \
    nmp_gemm_rows(c, &name##_product, first, last);                       \
  }                                                                       \
  static const nmp_conv_kernel name = {.packed = name##_packed,           \
                                       .pack = name##_pack,               \
                                       .scratch = name##_scratch,         \
                                       .tasks = nmp_gemm_tasks,           \
                                       .run = name##_run,                 \
                                       .rows = name##_rows,               \
                                       .pitched = 1};

#endif
#endif
