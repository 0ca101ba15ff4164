/* Rows of products times the weights of a convolution, in tiles whose sums lie on the stack. */
#ifndef NMP_CONV_ROWS_H
#define NMP_CONV_ROWS_H

#include "conv/conv.h"

#define NMP_TILE_ROWS 8      /* rows of a call */
#define NMP_TILE_CHANNELS 32 /* output channels whose sums are on the stack at a time */

/* The output step of some channels: y = sat(rsh(sum, shift) + bias). */
typedef struct nmp_channels {
  int32_t bias[NMP_TILE_CHANNELS];
  int8_t shift[NMP_TILE_CHANNELS];
} nmp_channels;

/* Channels [first, first + count), count <= NMP_TILE_CHANNELS. */
void nmp_channels_load(nmp_channels *channels, const nmp_conv *c, size_t first, size_t count);

/* Channels first + i, i < count, of output pixels pixel + r, r < rows <= NMP_TILE_ROWS. sums has rows of count. */
void nmp_scale_rows(const nmp_conv *c, const nmp_channels *channels, const void *sums, size_t rows, size_t first,
                    size_t count, size_t pixel);

/* The same from rows of k factors, one after the other at x; count is not limited. */
void nmp_rows(const nmp_conv *c, const void *x, size_t rows, size_t first, size_t count, size_t pixel);

#endif
