#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "conv/fits_int32.h"
#include "conv/patch.h"

NMP_ISA_BEGIN(NMP_ISA_AVX512VNNI)

#include "arch/x86/vector512.inc"

#define CHOOSE nmp_depthwise_avx512vnni
#include "conv/depthwise/depthwise.inc"

NMP_ISA_END
#endif
