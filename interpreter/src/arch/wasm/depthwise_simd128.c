#include "arch/wasm/level.h"

#ifdef NMP_WASM
#include <string.h>
#include <wasm_simd128.h>

#include "conv/fits_int32.h"
#include "conv/patch.h"

/* In this order. */
/* clang-format off */
#include "arch/wasm/vector128.inc"

#define CHOOSE nmp_depthwise_simd128
#include "conv/depthwise/depthwise.inc"
/* clang-format on */
#endif
