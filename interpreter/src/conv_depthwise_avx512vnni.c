#include "x86.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "conv.h"

NMP_TARGET_BEGIN(NMP_TARGET_AVX512VNNI)

#include "vector512.h"

#define CHOOSE nmp_depthwise_avx512vnni
#include "conv_depthwise.h"

NMP_TARGET_END
#endif
