#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "conv/fits_int32.h"
#include "conv/patch.h"

NMP_ISA_BEGIN(NMP_ISA_SSE41)

#include "arch/x86/vector128.inc"

#define CHOOSE nmp_depthwise_sse41
#include "conv/depthwise/depthwise.inc"

NMP_ISA_END
#endif
