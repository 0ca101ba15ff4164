#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "conv/fits_int32.h"
#include "conv/patch.h"

NMP_ISA_BEGIN(NMP_ISA_AVXVNNI)

#define VNNI
#include "arch/x86/vector256.inc"

#define CHOOSE nmp_depthwise_avxvnni
#include "conv/depthwise/depthwise.inc"

NMP_ISA_END
#endif
