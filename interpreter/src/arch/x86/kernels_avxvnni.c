#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "base/fixed.h"
#include "conv/conv.h"

NMP_ISA_BEGIN(NMP_ISA_AVXVNNI)

/* The order matters: each of these needs those before it. */
/* clang-format off */
static void loops(nmp_kernels *kernels);
#define NMP_LOOPS loops
#include "kernels/portable.inc"
#define VNNI
#include "arch/x86/vector256.inc"
#include "kernels/elementwise.inc"
#include "arch/x86/transpose.inc"
/* clang-format on */

static const nmp_conv_kernel *avxvnni_choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_avxvnni(c);
  return depthwise ? depthwise : nmp_conv_avxvnni(c);
}

void nmp_kernels_avxvnni(nmp_kernels *kernels) {
  loops(kernels);
  elements(kernels);
  transposes(kernels);
  kernels->conv = avxvnni_choose;
}

NMP_ISA_END
#endif
