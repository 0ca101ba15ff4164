#include "aarch64.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "conv.h"

NMP_TARGET_BEGIN(NMP_TARGET_DOTPROD)

#define DOTPROD
#include "vector128.h"

#define CHOOSE nmp_depthwise_neondot
#include "conv_depthwise_neon.h"

NMP_TARGET_END
#endif
