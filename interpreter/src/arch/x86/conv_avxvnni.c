#include "arch/x86/level.h"
#include "conv/gemm/gemm.h"

#ifdef NMP_X86
NMP_TARGET_BEGIN(NMP_TARGET_AVXVNNI)

#define DOT_BYTES(s, x, w) _mm256_dpbusd_avx_epi32(s, x, w)
#define DOT_WORDS(s, x, w) _mm256_dpwssd_avx_epi32(s, x, w)

#define JOINED
#include "arch/x86/tile_256.inc"
#define JOIN_RUNS 1 /* which may have 3 pixels: an odd number, but more products for what is loaded */
#include "arch/x86/tile_join_block.inc"

TILES(TILES_2, bytes)
SINGLE(bytes)
BLOCKS(7, 3, 1)
JOIN_BLOCKS(6, 3)
JOIN_PRODUCT(3, &join_blocks)
BLOCKS_NAMED(words_blocks, 7, 3, 0)
PRODUCTS(6, 3, 2, 1, 0x80, load_bytes, bytes_tiles, &blocks, &words_blocks, NULL, single_bytes)

NMP_TARGET_END

const nmp_conv_kernel *nmp_conv_avxvnni(const nmp_conv *c) {
  return nmp_split_words_claim(c) ? &join : choose(c);
}
#endif
