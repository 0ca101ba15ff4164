#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

#include "base/fixed.h"
#include "conv/conv.h"

NMP_ISA_BEGIN(NMP_ISA_AVX512VNNI)

/* The order matters: each of these needs those before it. */
/* clang-format off */
static void loops(nmp_kernels *kernels);
#define NMP_LOOPS loops
#include "kernels/portable.inc"
#include "arch/x86/vector512.inc"
#include "kernels/elementwise.inc"
#include "arch/x86/transpose.inc"
/* clang-format on */

/* True when all that a table makes fits 32 bits; small inputs are not worth to look. */
static int is_small(const int32_t *t, size_t n, int k) {
  const size_t samples = ((size_t)65536 >> k) + 1;
  const int32_t most = INT32_MAX >> k, room = 1 << 7; /* for half a unit */
  int32_t low = 0, high = 0;
  for (size_t i = 0; i < samples && n >= samples / 4; i++) {
    low = t[i] < low ? t[i] : low;
    high = t[i] > high ? t[i] : high;
  }
  return n >= samples / 4 && low > room - most && high < most - room;
}

/* gcc's gathers are macros that convert a mask to char, unless it optimizes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

/* A gathered element of 64 bits has both ends of a piece of the table. */
static NMP_INLINE void interpolate(uint8_t *y, const int16_t *x, const int32_t *t, size_t n, int k, int32_t lo,
                                   int32_t hi, int y_wide) {
  const vector ends = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m128i by = _mm_cvtsi32_si128(k), last = _mm_cvtsi32_si128(k + 8);
  for (size_t i = 0; i < n; i += LANES) {
    const __mmask16 some = (__mmask16)(n - i < LANES ? (1u << (n - i)) - 1 : 0xffff);
    const vector p = v_add(_mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(some, x + i)), v_set32(32768));
    const vector at = _mm512_srl_epi32(p, by), f = _mm512_and_si512(p, v_set32((1 << k) - 1));
    const vector a = _mm512_i32gather_epi64(_mm512_castsi512_si256(at), t, 4);
    const vector b = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(at, 1), t, 4);
    const vector from = _mm512_permutex2var_epi32(a, ends, b);
    const vector to = _mm512_permutex2var_epi32(a, v_add(ends, v_set32(1)), b);
    vector v = v_add(_mm512_sll_epi32(from, by), _mm512_mullo_epi32(_mm512_sub_epi32(to, from), f));
    v = _mm512_sra_epi32(v_add(v, v_set32(1 << (k + 7))), last);
    v = _mm512_max_epi32(_mm512_min_epi32(v, v_set32(hi)), v_set32(lo));
    if (y_wide) {
      _mm512_mask_cvtepi32_storeu_epi16(y + 2 * i, some, v);
    } else {
      _mm512_mask_cvtepi32_storeu_epi8(y + i, some, v);
    }
  }
}

#pragma GCC diagnostic pop

#define FAST_INTERPOLATE(widths, y_wide)              \
  static NMP_INTERPOLATE(fast_interpolate_##widths) { \
    if (is_small(t, n, k)) {                          \
      interpolate(y, x, t, n, k, lo, hi, y_wide);     \
    } else {                                          \
      interpolate_##widths(y, x, t, n, k, lo, hi);    \
    }                                                 \
  }

FAST_INTERPOLATE(16to8, 0)
FAST_INTERPOLATE(16to16, 1)

/* 16 at a time. inverse is floor(2^61 / sum), so v = floor(e * inverse / 2^32) is less than 2 below e * 2^29 / sum, the
 * quotient with 29 - up bits of fraction. Rounded half up, it can be too small only where these bits are all 1 then.
 */
static NMP_INLINE void divide_by_sum(uint8_t *y, const int32_t *e, size_t n, int up, uint64_t sum, uint32_t inverse,
                                     int32_t lo, int32_t hi, int y_wide, nmp_quotients_fn *exact) {
  const __m128i fraction = _mm_cvtsi32_si128(29 - up);
  const vector factor = v_set64(inverse), half = v_set32((int32_t)1 << (28 - up)), ones = v_set32(-1);
  const vector whole = _mm512_sll_epi32(ones, fraction), least = v_set32(lo), most = v_set32(hi);
  for (size_t i = 0; i < n; i += LANES) {
    const size_t count = nmp_min(n - i, LANES);
    const vector own = _mm512_maskz_loadu_epi32((__mmask16)v_mask(count), e + i);
    const vector even = _mm512_srli_epi64(_mm512_mul_epu32(own, factor), 32);
    const vector odd = _mm512_mul_epu32(_mm512_srli_epi64(own, 32), factor);
    const vector v = v_add(_mm512_mask_mov_epi32(even, 0xaaaa, odd), half);
    if (_mm512_cmpeq_epi32_mask(_mm512_or_si512(v, whole), ones)) {
      exact(y + (i << y_wide), e + i, count, up, sum, inverse, lo, hi);
      continue;
    }
    const vector q = _mm512_max_epi32(_mm512_min_epi32(_mm512_srl_epi32(v, fraction), most), least);
    if (y_wide) {
      _mm512_mask_cvtepi32_storeu_epi16(y + 2 * i, (__mmask16)v_mask(count), q);
    } else {
      _mm512_mask_cvtepi32_storeu_epi8(y + i, (__mmask16)v_mask(count), q);
    }
  }
}

static NMP_QUOTIENTS(fast_quotients_8) {
  divide_by_sum(y, e, n, up, sum, inverse, lo, hi, 0, quotients_8);
}

static NMP_QUOTIENTS(fast_quotients_16) {
  divide_by_sum(y, e, n, up, sum, inverse, lo, hi, 1, quotients_16);
}

static const nmp_conv_kernel *avx512vnni_choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_avx512vnni(c);
  return depthwise ? depthwise : nmp_conv_avx512vnni(c);
}

void nmp_kernels_avx512vnni(nmp_kernels *kernels) {
  loops(kernels);
  elements(kernels);
  transposes(kernels);
  if (nmp_x86_features() & NMP_AVX512VBMI) {
    nmp_kernels_avx512vbmi(kernels);
  }
  kernels->interpolate[0] = fast_interpolate_16to8;
  kernels->interpolate[1] = fast_interpolate_16to16;
  kernels->quotients[0] = fast_quotients_8;
  kernels->quotients[1] = fast_quotients_16;
  kernels->conv = avx512vnni_choose;
}

NMP_ISA_END
#endif
