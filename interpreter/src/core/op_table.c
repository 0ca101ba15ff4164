#include "core/model.h"

#define DECLARE(name, NAME) extern const nmp_op_type nmp_##name##_type;
#define ENTRY(name, NAME) [NMP_OP_##NAME] = &nmp_##name##_type,

NMP_BUILD_OPS(DECLARE)

#define DECODE(name, NAME) [NMP_OP_##NAME] = NMP_DECODE_##name,

const nmp_op_type *const nmp_op_table[NMP_OP_TABLE] = {NMP_BUILD_OPS(ENTRY)};
nmp_decode_fn *const nmp_op_decode[NMP_OP_TABLE] = {NMP_BUILD_OPS(DECODE)};
