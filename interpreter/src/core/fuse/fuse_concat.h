/* Concatenations of channels whose inputs are computed where they would be copied to: convolutions write their channels
 * of each pixel of the result. For PCs.
 */
#ifndef NMP_CORE_FUSE_FUSE_CONCAT_H
#define NMP_CORE_FUSE_FUSE_CONCAT_H

#include "core/model.h"

/* How many ops, from this one of a verified model on, are convolutions right before a concatenation that alone reads
 * what they make, with it; 0: none. Nothing that they read or write may lie where its result does. scratch: bytes that
 * the convolutions need, behind that.
 */
uint32_t nmp_views_at(const nmp_model *m, const nmp_kernels *kernels, const nmp_options *threads, uint32_t op,
                      uint64_t *budget, size_t *scratch);

/* ops: the first one and those that follow it, prepared. */
void nmp_views_run(const nmp_op *ops, uint32_t count, void *scratch);

#endif
