#include "arch/x86/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_X86
NMP_TARGET_BEGIN(NMP_TARGET_AVX2)

/* There is no instruction for bytes that does not saturate: int8 goes as int16, too. */
#define DOT_BYTES(s, x, w) (s)
#define DOT_WORDS(s, x, w) added(s, _mm256_madd_epi16(x, w))

#include <immintrin.h>

/* In the same register: compilers may add to another one, and copy each sum back. */
static inline __m256i added(__m256i sum, __m256i products) {
  __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
  return sum;
}

#include "arch/x86/tile_256.inc"
#define PLANES_RUNS 1 /* see conv_avxvnni.c */
#include "arch/x86/tile_planes_block.inc"

BLOCKS(6, 3, 0)
PLANES_BLOCKS(6, 3)
PRODUCTS(6, 3, 6, 2, 0, load_words_8, words_tiles, &blocks, &blocks, &planes_blocks, single_words)

NMP_TARGET_END

const nmp_conv_kernel *nmp_conv_avx2(const nmp_conv *c) {
  return choose(c);
}
#endif
