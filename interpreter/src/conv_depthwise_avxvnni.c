#include "x86.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "conv.h"

NMP_TARGET_BEGIN(NMP_TARGET_AVXVNNI)

#define VNNI
#include "vector256.h"

#define CHOOSE nmp_depthwise_avxvnni
#include "conv_depthwise.h"

NMP_TARGET_END
#endif
