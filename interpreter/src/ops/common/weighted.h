/* Parts that ops with weights have in common: the checks of weights and biases, and how a convolution is run. */
#ifndef NMP_OPS_COMMON_WEIGHTED_H
#define NMP_OPS_COMMON_WEIGHTED_H

#include "conv/conv.h"
#include "ops/common/check.h"

/* Inputs x, w, b: w is constant with `out` channels of k products, b its biases; all shifts are legal, all sums fit. */
nmp_rule nmp_check_weights(const nmp_op *op, int64_t out, int64_t k);

/* Fills in what follows from the tensors x, w, b, y; the axes, images and groups are the caller's. */
void nmp_conv_fill(nmp_conv *c, const nmp_op *op);

/* This build has a kernel for it; after nmp_check_weights. */
nmp_rule nmp_conv_check(const nmp_conv *c);

/* conv2d.c: also of conv_add, which adds. */
nmp_rule nmp_conv2d_check(const nmp_op *op);
void nmp_conv2d_conv(const nmp_op *op, nmp_conv *c);
uint64_t nmp_conv2d_work(const nmp_op *op);

/* Members of an nmp_op_type that has `conv`: the one way of all convolutions, also of those whose result is written
 * over their input.
 */
size_t nmp_conv_scratch(const nmp_op *op);
void nmp_conv_run(const nmp_op *op);

/* It is a convolution that the level's own kernels leave to the portable ones. */
int nmp_op_is_portable(const nmp_op *op);

/* A convolution with everything that is decided before it runs. */
typedef struct nmp_conv_call {
  nmp_conv conv;
  const nmp_conv_kernel *kernel;
#if NMP_KEEP_STEPS
  size_t tasks;
  size_t worker; /* bytes of scratch of each of the workers */
  size_t copy;   /* bytes of the input; not 0: it is copied to the scratch first, since the result is written over it */
#endif
} nmp_conv_call;

#if NMP_KEEP_STEPS
nmp_conv_call nmp_conv_decide(const nmp_op *op);

/* Number of tasks that its threads are worth. */
size_t nmp_conv_tasks(const nmp_op *op, const nmp_conv_call *call);

/* Bytes of weights in the order of the kernel. */
size_t nmp_conv_packed(const nmp_conv_call *call);
size_t nmp_op_packed(const nmp_op *op); /* 0 for ops that are no convolutions */

/* Writes them and keeps where they are. */
void nmp_conv_pack(nmp_conv_call *call, void *to);

void nmp_conv_call_run(const nmp_conv_call *call, const nmp_options *threads);
#else
static inline size_t nmp_op_packed(const nmp_op *op) {
  (void)op;
  return 0;
}
#endif

#endif
