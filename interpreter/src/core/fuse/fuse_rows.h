/* Row fusion: ops that threads run together, a convolution and what follows it row by row, such as a pointwise
 * convolution, an addition or a table. Each thread takes some rows through all of them, so that threads meet once, and
 * what lies between two ops stays in a cache of the core and is not written to its place in the arena. For hosts.
 *
 * One thread runs op after op: where sums are computed by vectors, rows that go through several ops took 0 to 5 %
 * longer than whole ops did, since memory is read ahead anyway and kernels take many rows at a time with less ado.
 */
#ifndef NMP_CORE_FUSE_FUSE_ROWS_H
#define NMP_CORE_FUSE_FUSE_ROWS_H

#include "core/steps.h"

/* Fused ops that begin with this one of a verified model, but for their place in the arena. */
nmp_fused nmp_fuse_rows(const nmp_model *m, uint32_t op, uint64_t *budget);

#endif
