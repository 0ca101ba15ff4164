#include "model.h"

#define DECLARE(name, NAME) extern const nmp_op_type nmp_##name##_type;
#define ENTRY(name, NAME) [NMP_OP_##NAME] = &nmp_##name##_type,

NMP_BUILD_OPS(DECLARE)

const nmp_op_type *const nmp_op_table[NMP_OP_KINDS] = {NMP_BUILD_OPS(ENTRY)};
