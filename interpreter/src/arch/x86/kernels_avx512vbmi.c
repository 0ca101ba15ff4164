#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>

NMP_ISA_BEGIN(NMP_ISA_AVX512VBMI)

/* 256 bytes are four vectors: two for the negative x, two for the others. */
static NMP_LOOKUP(lookup_8to8) {
  const uint8_t *xs = x, *t = table;
  const __m512i a = _mm512_loadu_si512(t), b = _mm512_loadu_si512(t + 64);
  const __m512i c = _mm512_loadu_si512(t + 128), d = _mm512_loadu_si512(t + 192);
  uint8_t *ys = y;
  (void)lo;
  (void)hi;
  for (size_t i = 0; i < n; i += 64) {
    const __mmask64 some = n - i < 64 ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;
    const __m512i v = _mm512_maskz_loadu_epi8(some, xs + i);
    const __m512i negative = _mm512_permutex2var_epi8(a, v, b), other = _mm512_permutex2var_epi8(c, v, d);
    _mm512_mask_storeu_epi8(ys + i, some, _mm512_mask_mov_epi8(other, _mm512_movepi8_mask(v), negative));
  }
}

void nmp_kernels_avx512vbmi(nmp_kernels *kernels) {
  kernels->lookup[0] = lookup_8to8;
}

NMP_ISA_END
#endif
