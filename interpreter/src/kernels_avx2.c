#include "conv_bands.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "fixed.h"

NMP_TARGET_BEGIN(NMP_TARGET_AVX2)

/* What follows needs what is before it. */
/* clang-format off */
static void loops(nmp_kernels *kernels);
#define nmp_kernels_portable loops
#include "kernels_portable.c"
#include "vector256.h"
#include "kernels_elements.h"
#include "transpose_x86.h"
/* clang-format on */

static const nmp_conv_kernel *choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_avx2(c);
  return depthwise ? depthwise : nmp_conv_avx2(c);
}

void nmp_kernels_avx2(nmp_kernels *kernels) {
  loops(kernels);
  elements(kernels);
  transposes(kernels);
  kernels->conv = choose;
}

NMP_TARGET_END
#endif
