/* The level of WebAssembly with vectors of 128 bits. Its files are part of every build and empty elsewhere; modules
 * have these instructions or not, so nothing is asked for at run time.
 */
#ifndef NMP_ARCH_WASM_LEVEL_H
#define NMP_ARCH_WASM_LEVEL_H

#include "base/isa.h"
#include "kernels/kernels.h"

#if defined(__wasm_simd128__) && !NMP_FIXED_CPU
#define NMP_WASM

nmp_conv_choose_fn nmp_conv_simd128;      /* dense convolutions */
nmp_conv_choose_fn nmp_depthwise_simd128; /* conv/depthwise/depthwise.inc: NULL for others */

void nmp_kernels_simd128(nmp_kernels *kernels);

#endif
#endif
