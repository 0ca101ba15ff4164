#include "arch/aarch64/level.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "conv/fits_int32.h"

NMP_ISA_BEGIN(NMP_ISA_DOTPROD)

#define DOTPROD
#include "arch/aarch64/vector128.inc"

#define CHOOSE nmp_depthwise_neondot
#include "arch/aarch64/depthwise.inc"

NMP_ISA_END
#endif
