#include "arch/wasm/level.h"

#ifdef NMP_WASM
#include <string.h>
#include <wasm_simd128.h>

#include "conv/conv.h"

/* The portable loops have the same instructions here. */
#define REST(name) nmp_##name
/* Mixed widths and resizes are left to them: what is sent over a network is to be small. */
#define SMALL_RESIZES
#define EACH_WIDTHS(K) K(8x8to8, 0, 0, 0) K(16x16to16, 1, 1, 1)

#include "arch/wasm/vector128.inc"
/* after that */
#include "kernels/elementwise.inc"

static const nmp_conv_kernel *simd128_choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_simd128(c);
  return depthwise ? depthwise : nmp_conv_simd128(c);
}

void nmp_kernels_simd128(nmp_kernels *kernels) {
  elements(kernels);
  kernels->conv = simd128_choose;
}
#endif
