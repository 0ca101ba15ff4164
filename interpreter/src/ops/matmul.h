/* Weights, biases and shifts of output channels, which convolution and fully connected share. */
#ifndef NMP_OPS_MATMUL_H
#define NMP_OPS_MATMUL_H

#include "check.h"

#define NMP_TILE_ROWS 8      /* rows of a call */
#define NMP_TILE_CHANNELS 32 /* output channels whose sums are on the stack at a time */

/* The output step of some channels: y = sat(rsh(sum, shift) + bias). */
typedef struct nmp_channels {
  int32_t bias[NMP_TILE_CHANNELS];
  int8_t shift[NMP_TILE_CHANNELS];
} nmp_channels;

/* Inputs x, w, b: w is constant with `out` channels of k products, b its biases; all shifts are legal, all sums fit. */
nmp_rule nmp_check_weights(const nmp_op *op, int64_t out, int64_t k);

/* Channels [first, first + count), count <= NMP_TILE_CHANNELS. */
void nmp_channels_load(nmp_channels *channels, const nmp_op *op, size_t first, size_t count);

/* y[r * y_stride + c] for rows r < rows <= NMP_TILE_ROWS and output channels first + c, c < count. x has rows of k. */
void nmp_matmul(const nmp_op *op, const void *x, size_t x_stride, size_t rows, size_t k, size_t first, size_t count,
                void *y, size_t y_stride);

#endif
