#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "base/fixed.h"
#include "conv/conv.h"

NMP_ISA_BEGIN(NMP_ISA_SSE41)

/* The order matters: each of these needs those before it. */
/* clang-format off */
static void loops(nmp_kernels *kernels);
#define NMP_LOOPS loops
#include "kernels/portable.inc"
#include "arch/x86/vector128.inc"
#include "kernels/elementwise.inc"
#include "arch/x86/transpose.inc"
/* clang-format on */

static const nmp_conv_kernel *sse41_choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_sse41(c);
  return depthwise ? depthwise : nmp_conv_sse41(c);
}

void nmp_kernels_sse41(nmp_kernels *kernels) {
  loops(kernels);
  elements(kernels);
  transposes(kernels);
  kernels->conv = sse41_choose;
  if (nmp_x86_features() & NMP_PCLMUL) {
    kernels->crc = nmp_crc32_x86;
  }
}

NMP_ISA_END
#endif
