#include "conv_bands.h"

#ifdef NMP_X86
NMP_TARGET_BEGIN(NMP_TARGET_AVX2)

/* There is no instruction for bytes that does not saturate: int8 goes as int16, too. */
#define DOT_BYTES(s, x, w) (s)
#define DOT_WORDS(s, x, w) ADD(s, _mm256_madd_epi16(x, w))

#include "tile_256.h"

PRODUCTS(6, 3, 6, 2, 0, load_words_8, words_tiles, NULL, NULL, single_words)

NMP_TARGET_END

const nmp_conv_kernel *nmp_conv_avx2(const nmp_conv *c) {
  return choose(c);
}
#endif
