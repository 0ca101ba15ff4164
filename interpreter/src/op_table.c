#include "model.h"

/* A build that wants fewer ops defines NMP_BUILD_OPS(X) as its own part of NMP_OPS. */
#ifndef NMP_BUILD_OPS
#define NMP_BUILD_OPS NMP_OPS
#endif

#define DECLARE(name, NAME) extern const nmp_op_type nmp_##name##_type;
#define ENTRY(name, NAME) [NMP_OP_##NAME] = &nmp_##name##_type,

NMP_BUILD_OPS(DECLARE)

const nmp_op_type *const nmp_op_table[NMP_OP_KINDS] = {NMP_BUILD_OPS(ENTRY)};
