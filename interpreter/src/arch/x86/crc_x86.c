#include "arch/x86/level.h"

#ifdef NMP_X86
#include <immintrin.h>
#include <string.h>

NMP_ISA_BEGIN(NMP_ISA_PCLMUL)

typedef __m128i block;

/* a, some blocks further on: the remainders of x^(distance +- 32) take the place of its halves. */
static NMP_INLINE block fold(block a, block by, block next) {
  return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(a, by, 0x00), _mm_clmulepi64_si128(a, by, 0x11)));
}

static NMP_INLINE block load(const uint8_t *data) {
  return _mm_loadu_si128((const block *)(const void *)data);
}

/* Products without carries keep the remainder while data becomes shorter (Gopal et al., Fast CRC Computation Using
 * PCLMULQDQ, 2009); what is left at the end is for the plain loop, whose register then starts with 0.
 */
uint32_t nmp_crc32_x86(uint32_t crc, const uint8_t *data, size_t bytes) {
  const block by_4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  uint8_t rest[2 * sizeof(block)];
  block sums[4];
  if (bytes < sizeof(sums)) {
    return nmp_crc32(crc, data, bytes);
  }
  for (size_t i = 0; i < 4; i++) {
    sums[i] = load(data + i * sizeof(block));
  }
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)~crc));
  for (bytes -= sizeof(sums), data += sizeof(sums); bytes >= sizeof(sums); bytes -= sizeof(sums)) {
    for (size_t i = 0; i < 4; i++, data += sizeof(block)) {
      sums[i] = fold(sums[i], by_4, load(data));
    }
  }
  for (size_t i = 1; i < 4; i++) {
    sums[0] = fold(sums[0], by_1, sums[i]);
  }
  for (; bytes >= sizeof(block); bytes -= sizeof(block), data += sizeof(block)) {
    sums[0] = fold(sums[0], by_1, load(data));
  }
  memcpy(rest, sums, sizeof(block));
  memcpy(rest + sizeof(block), data, bytes);
  return nmp_crc32(UINT32_MAX, rest, sizeof(block) + bytes);
}

NMP_ISA_END
#endif
