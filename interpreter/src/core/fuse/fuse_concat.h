/* Placed inputs: convolutions right before a concatenation of channels write their channels of each pixel of its
 * result, so that nothing is copied. For hosts.
 */
#ifndef NMP_CORE_FUSE_FUSE_CONCAT_H
#define NMP_CORE_FUSE_FUSE_CONCAT_H

#include "core/steps.h"

/* Fused ops that begin with this one of a verified model, but for their place in the arena: convolutions right before a
 * concatenation that alone reads what they make, with it. Nothing that they read or write may lie where its result
 * does.
 */
nmp_fused nmp_fuse_concat(const nmp_model *m, uint32_t op, uint64_t *budget);

#endif
