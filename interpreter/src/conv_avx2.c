#include "conv_x86.h"

#ifdef NMP_X86
NMP_TARGET_BEGIN(NMP_TARGET_AVX2)

/* There is no instruction for bytes that does not saturate: int8 goes as int16, too. */
#define DOT_BYTES(s, x, w) (s)
#define DOT_WORDS(s, x, w) ADD(s, _mm256_madd_epi16(x, w))

#include "tile_256.h"

TILES(TILES_6, words)

NMP_TARGET_END

static const nmp_product int8_product = {2, 1, 0, 0, LANES, 6, load_words_8, words_tiles, finish};
PRODUCTS

NMP_X86_KERNEL(int8)
NMP_X86_KERNEL(int8_int16)
NMP_X86_KERNEL(int16_int8)
NMP_X86_KERNEL(int16)

const nmp_conv_kernel *nmp_conv_avx2(const nmp_conv *c) {
  static const nmp_conv_kernel *const by_width[2][2] = {{&int8, &int8_int16}, {&int16_int8, &int16}};
  return nmp_conv_is_depthwise(c) ? nmp_conv_portable(c) : by_width[c->x_wide][c->w_wide];
}
#endif
