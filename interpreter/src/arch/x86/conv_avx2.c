#include "arch/x86/level.h"
#include "conv/gemm/split_words.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_AVX2)

/* In this order. */
/* clang-format off */
#include "arch/x86/vector256.inc"
#include "arch/x86/gemm_words.inc"
/* clang-format on */

NMP_ISA_END

const nmp_conv_kernel *nmp_conv_avx2(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16_int8, &int16}};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
