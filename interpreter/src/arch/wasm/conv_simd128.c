#include "arch/wasm/level.h"
#include "conv/gemm/split_words.h"

#ifdef NMP_WASM
#include <string.h>
#include <wasm_simd128.h>

/* In this order. */
/* clang-format off */
#include "arch/wasm/vector128.inc"
#include "conv/gemm/vector_tiles.inc"
#include "conv/gemm/vector_epilogue.inc"
#include "conv/gemm/vector_blocks.inc"
#include "conv/gemm/vector_gemv.inc"
/* clang-format on */

/* Few sizes of those that are rare: what is sent over a network is to be small. */
#define PIXELS_1(X, vectors, ...) X(1, vectors, __VA_ARGS__)

TILES(words, OF_WORDS, 0, PIXELS_1)
TILES(split_planes, OF_SPLIT_PLANES, 0, PIXELS_1)
TILES(wide_words, OF_WORDS, 1, PIXELS_1)
TILES(wide_split_planes, OF_SPLIT_PLANES, 1, PIXELS_1)
/* V8 has 15 registers for vectors, and may load all operands of a loop's round before the first product: 8 sums, 4
 * pixels, 2 weights and a product. With one pixel more in each run, sums went through memory: 1.4 times as long.
 */
BLOCKS(words, OF_WORDS, 2, 3, 2)
GEMV(words, OF_WORDS)

/* The only dot product is that of words: int8 goes as words, too. */
GEMM_KERNEL(int8, .element = 2, .planes = 1, .load = load_words_8,
            .tiles = {{.pixels = 1, .functions = words_tiles, .epilogue = nmp_gemm_epilogue_any},
                      {.pixels = 1, .functions = words_tiles, .epilogue = epilogue}},
            .blocks = &words_blocks, .gemv = gemv_words)
GEMM_KERNEL(int8_int16, .element = 2, .planes = 1, .load = load_words_8,
            .tiles = {{.pixels = 1, .functions = wide_words_tiles, .epilogue = epilogue_int64},
                      {.pixels = 1, .functions = words_tiles, .epilogue = epilogue}},
            .blocks = &words_blocks, .gemv = gemv_words)
GEMM_KERNEL(int16_int8, .element = 2, .planes = 1, .load = load_words_16,
            .tiles = {{.pixels = 1, .functions = wide_words_tiles, .epilogue = epilogue_int64},
                      {.pixels = 1, .functions = words_tiles, .epilogue = epilogue}},
            .blocks = &words_blocks, .gemv = gemv_words, .gemv_as_is = 1)
GEMM_KERNEL(int16, .element = 2, .planes = 2, .load = load_split_planes,
            .tiles = {{.pixels = 1, .functions = wide_split_planes_tiles, .epilogue = epilogue_int64},
                      {.pixels = 1, .functions = split_planes_tiles, .epilogue = epilogue}})

const nmp_conv_kernel *nmp_conv_simd128(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16_int8, &int16}};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
