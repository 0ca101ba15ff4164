#include "arch/aarch64/level.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "arch/aarch64/vector128.inc"
#include "conv/fits_int32.h"

#define CHOOSE nmp_depthwise_neon
#include "arch/aarch64/depthwise.inc"

#endif
