/* A convolution whose result shares bytes with its input: FORMAT.md says which plans are legal. */
#ifndef NMP_OPS_COMMON_OVERLAP_H
#define NMP_OPS_COMMON_OVERLAP_H

#include "ops/common/weighted.h"

/* The result may begin this many bytes after the input does. */
int nmp_overlap_legal(const nmp_conv *c, int64_t at);

/* As nmp_conv_scratch and nmp_conv_run, in bands of lines where the two overlap. */
size_t nmp_overlap_scratch(const nmp_op *op, const nmp_conv *c);
void nmp_overlap_run(const nmp_op *op, const nmp_conv *c);

#endif
