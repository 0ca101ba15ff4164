#include "arch/x86/level.h"

#ifdef NMP_X86
#include <cpuid.h>

/* The registers that the operating system saves: bits of XCR0. */
#define SAVES_YMM 0x06u
#define SAVES_ZMM 0xE6u

static unsigned saved_registers(void) {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

unsigned nmp_x86_features(void) {
  const unsigned needed = 1u << 28 | 1u << 27 | 1u << 1; /* AVX, OSXSAVE, PCLMUL */
  const unsigned avx2 = 1u << 5, avxvnni = 1u << 4, avx512vnni = 1u << 11;
  const unsigned avx512vbmi = 1u << 1;
  const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
  unsigned a, b, c, d, b7, c7, features = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & needed) != needed) {
    return 0;
  }
  const unsigned saved = saved_registers();
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d) || !(b7 & avx2) || (saved & SAVES_YMM) != SAVES_YMM) {
    return 0;
  }
  features = NMP_AVX2;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & avxvnni)) {
    features |= NMP_AVXVNNI;
  }
  if ((b7 & avx512) == avx512 && (c7 & avx512vnni) && (saved & SAVES_ZMM) == SAVES_ZMM) {
    features |= NMP_AVX512VNNI | (c7 & avx512vbmi ? NMP_AVX512VBMI : 0);
  }
  return features;
}
#endif
