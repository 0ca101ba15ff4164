/* What ops with weights have in common: the checks of weights and biases, and a convolution that is run in shares. */
#ifndef NMP_OPS_COMMON_WEIGHTED_H
#define NMP_OPS_COMMON_WEIGHTED_H

#include "conv/conv.h"
#include "ops/common/check.h"

/* Inputs x, w, b: w is constant with `out` channels of k products, b its biases; all shifts are legal, all sums fit. */
nmp_rule nmp_check_weights(const nmp_op *op, int64_t out, int64_t k);

/* What follows from the tensors x, w, b, y; the axes, images and groups are the caller's. */
void nmp_conv_fill(nmp_conv *c, const nmp_op *op);

/* This build has a kernel for it; after nmp_check_weights. */
nmp_rule nmp_conv_check(const nmp_conv *c);

size_t nmp_conv_scratch(const nmp_op *op, const nmp_conv *c);
size_t nmp_conv_packed(const nmp_conv *c);
void nmp_conv_pack(const nmp_conv *c, void *to);
void nmp_conv_run(const nmp_op *op, const nmp_conv *c);

/* conv2d.c: an op as a convolution. */
nmp_conv nmp_conv_of(const nmp_op *op);

/* It is run by nmp_conv_run_prepared. */
int nmp_conv_is_prepared(const nmp_op *op);

/* A convolution with everything that a run decides, in front of its packed weights; where memory is plenty. */
typedef struct nmp_prepared {
  nmp_conv conv;
  const nmp_conv_kernel *kernel;
  size_t tasks;
} nmp_prepared;

/* As nmp_conv_packed, nmp_conv_pack and nmp_conv_run, where op->packed is of these. */
size_t nmp_conv_prepared(const nmp_conv *c);
void nmp_conv_prepare(const nmp_op *op, const nmp_conv *c, void *to);
void nmp_conv_run_prepared(const nmp_op *op);

/* The same with result and scratch elsewhere, by a kernel that is pitched. */
void nmp_conv_run_into(const nmp_op *op, void *y, uint32_t pitch, void *scratch);

#endif
