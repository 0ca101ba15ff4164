#include "arch/x86/level.h"
#include "conv/gemm/split_words.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_SSE41)

/* In this order. */
/* clang-format off */
#include "arch/x86/vector128.inc"
#include "conv/gemm/vector_tiles.inc"
#include "conv/gemm/vector_epilogue.inc"
#include "conv/gemm/vector_blocks.inc"
#include "conv/gemm/vector_gemv.inc"
/* clang-format on */

TILES(words, OF_WORDS, 0, PIXELS_6)
TILES(split_planes, OF_SPLIT_PLANES, 0, PIXELS_3)
TILES(wide_words, OF_WORDS, 1, PIXELS_2)
TILES(wide_split_planes, OF_SPLIT_PLANES, 1, PIXELS_2)
BLOCKS(words, OF_WORDS, 2, 6, 3)
BLOCKS(split_planes, OF_SPLIT_PLANES, 1, 6, 3) /* 3 pixels of a run: an odd number, but more products for a load */
GEMV(words, OF_WORDS)
GEMV(split_planes, OF_SPLIT_PLANES)

/* There is no instruction for bytes that does not saturate: int8 goes as words, too. */
GEMM_KERNEL(int8, .element = 2, .planes = 1, .load = load_words_8,
            .tiles = {{.pixels = 6, .functions = words_tiles, .epilogue = nmp_gemm_epilogue_any},
                      {.pixels = 6, .functions = words_tiles, .epilogue = epilogue}},
            .blocks = &words_blocks, .gemv = gemv_words)
GEMM_KERNEL(int8_int16, .element = 2, .planes = 1, .load = load_words_8,
            .tiles = {{.pixels = 2, .functions = wide_words_tiles, .epilogue = epilogue_int64},
                      {.pixels = 6, .functions = words_tiles, .epilogue = epilogue}},
            .blocks = &words_blocks, .gemv = gemv_words)
GEMM_KERNEL(int16_int8, .element = 2, .planes = 1, .load = load_words_16,
            .tiles = {{.pixels = 2, .functions = wide_words_tiles, .epilogue = epilogue_int64},
                      {.pixels = 6, .functions = words_tiles, .epilogue = epilogue}},
            .blocks = &words_blocks, .gemv = gemv_words, .gemv_as_is = 1)
GEMM_KERNEL(int16, .element = 2, .planes = 2, .load = load_split_planes,
            .tiles = {{.pixels = 2, .functions = wide_split_planes_tiles, .epilogue = epilogue_int64},
                      {.pixels = 3, .functions = split_planes_tiles, .epilogue = epilogue}},
            .blocks = &split_planes_blocks, .gemv = gemv_split_planes)

NMP_ISA_END

const nmp_conv_kernel *nmp_conv_sse41(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16_int8, &int16}};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
