#include "aarch64.h"

#ifdef NMP_AARCH64
#include <arm_neon.h>
#include <string.h>

#include "conv.h"
#include "vector128.h"

#define CHOOSE nmp_depthwise_neon
#include "conv_depthwise_neon.h"

#endif
