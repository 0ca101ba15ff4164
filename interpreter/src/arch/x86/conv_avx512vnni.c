#include "arch/x86/level.h"
#include "conv/gemm/split_words.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_AVX512VNNI)

/* In this order. */
/* clang-format off */
#include "arch/x86/vector512.inc"
#include "conv/gemm/vector_tiles.inc"
#include "conv/gemm/vector_epilogue.inc"
#include "conv/gemm/vector_blocks.inc"
#include "conv/gemm/vector_gemv.inc"
#include "arch/x86/gemm_split_words.inc"
#include "arch/x86/pack.inc"
/* clang-format on */

TILES(bytes, OF_BYTES, 0, PIXELS_2)
TILES(words, OF_WORDS, 0, PIXELS_14)
TILES(split_planes, OF_SPLIT_PLANES, 0, PIXELS_7)
TILES(split_words, OF_SPLIT_WORDS, 0, PIXELS_7)
TILES(wide_words, OF_WORDS, 1, PIXELS_2)
TILES(wide_split_planes, OF_SPLIT_PLANES, 1, PIXELS_2)
TILES(wide_split_words, OF_SPLIT_WORDS, 1, PIXELS_7)
BLOCKS(bytes, OF_BYTES, 2, 8, 7)
BLOCKS(split_planes, OF_SPLIT_PLANES, 2, 4, 3)
BLOCKS(split_words, OF_SPLIT_WORDS, 2, 7, 3)
GEMV(bytes, OF_BYTES)
GEMV(words, OF_WORDS)
GEMV(split_planes, OF_SPLIT_PLANES)

GEMM_KERNEL(int8, .element = 1, .planes = 1, .zero = 0x80, .load = load_bytes,
            .tiles = {{.pixels = 2, .functions = bytes_tiles, .epilogue = nmp_gemm_epilogue_any},
                      {.pixels = 2, .functions = bytes_tiles, .epilogue = epilogue}},
            .blocks = &bytes_blocks, .gemv = gemv_bytes, .gemv_as_is = 1, .pack_four = pack_four)
GEMM_KERNEL(int8_int16, .element = 2, .planes = 1, .load = load_words_8,
            .tiles = {{.pixels = 2, .functions = wide_words_tiles, .epilogue = epilogue_int64},
                      {.pixels = 14, .functions = words_tiles, .epilogue = epilogue}},
            .gemv = gemv_words)
GEMM_KERNEL(int16_int8, .element = 2, .planes = 1, .load = load_words_16,
            .tiles = {{.pixels = 2, .functions = wide_words_tiles, .epilogue = epilogue_int64},
                      {.pixels = 14, .functions = words_tiles, .epilogue = epilogue}},
            .gemv = gemv_words, .gemv_as_is = 1)
GEMM_KERNEL(int16, .element = 2, .planes = 2, .load = load_split_planes,
            .tiles = {{.pixels = 2, .functions = wide_split_planes_tiles, .epilogue = epilogue_int64},
                      {.pixels = 7, .functions = split_planes_tiles, .epilogue = epilogue}},
            .blocks = &split_planes_blocks, .gemv = gemv_split_planes, .pack_four = pack_four)
GEMM_SPLIT_WORDS_KERNEL(split_words, 7)

NMP_ISA_END

const nmp_conv_kernel *nmp_conv_avx512vnni(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16_int8, &int16}};
  if (nmp_split_words_claim(c)) {
    return &split_words;
  }
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
