/* Finds the ops of a net that are run as one, for hosts: rows that go through several ops (fuse_rows.h), or
 * convolutions that write to their channels of a concatenation (fuse_concat.h).
 */
#ifndef NMP_CORE_FUSE_FUSE_H
#define NMP_CORE_FUSE_FUSE_H

#include "core/steps.h"

/* Adds what fused ops of a verified model take to `needs`, and emits these into `steps`; either may be NULL. */
void nmp_fuse(const nmp_model *m, nmp_needs *needs, nmp_step *steps);

#endif
