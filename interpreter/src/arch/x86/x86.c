#include "arch/x86/level.h"

#ifdef NMP_X86
#include <cpuid.h>

/* The registers that the operating system saves: bits of XCR0. */
#define SAVES_YMM 0x06u
#define SAVES_ZMM 0xE6u
#define SAVES_TILES 0x60000u

static unsigned saved_registers(void) {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/* True when tiles of bytes may be used. Linux gives their registers to who asks for them, for the whole process; to ask
 * again changes nothing.
 */
static int has_amx(unsigned features, unsigned saved, unsigned d7) {
#ifdef NMP_AMX_EMULATED
  (void)features;
  (void)saved;
  (void)d7;
  return 1;
#elif defined(NMP_AMX)
  const unsigned tiles = 1u << 24 | 1u << 25; /* TILE, INT8 */
  const long arch_prctl = 158, ask = 0x1023, registers = 18;
  long answer = arch_prctl;
  if (!(features & NMP_AVX512VNNI) || (d7 & tiles) != tiles || (saved & SAVES_TILES) != SAVES_TILES) {
    return 0;
  }
  __asm__ volatile("syscall" : "+a"(answer) : "D"(ask), "S"(registers) : "rcx", "r11", "memory");
  return answer == 0;
#else
  (void)features;
  (void)saved;
  (void)d7;
  return 0;
#endif
}

unsigned nmp_x86_features(void) {
  const unsigned sse41 = 1u << 19 | 1u << 9, pclmul = 1u << 1; /* SSE4.1, SSSE3 */
  const unsigned avx = 1u << 28 | 1u << 27;                    /* AVX, OSXSAVE */
  const unsigned avx2 = 1u << 5, avxvnni = 1u << 4, avx512vnni = 1u << 11;
  const unsigned avx512vbmi = 1u << 1;
  const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
  unsigned a, b, c, d, b7, c7, d7, features = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & sse41) != sse41) {
    return 0;
  }
  features = NMP_SSE41 | (c & pclmul ? NMP_PCLMUL : 0);
  if (!(c & pclmul) || (c & avx) != avx) {
    return features;
  }
  const unsigned saved = saved_registers();
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !(b7 & avx2) || (saved & SAVES_YMM) != SAVES_YMM) {
    return features;
  }
  features |= NMP_AVX2;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & avxvnni)) {
    features |= NMP_AVXVNNI;
  }
  if ((b7 & avx512) == avx512 && (c7 & avx512vnni) && (saved & SAVES_ZMM) == SAVES_ZMM) {
    features |= NMP_AVX512VNNI | (c7 & avx512vbmi ? NMP_AVX512VBMI : 0);
  }
  return features | (has_amx(features, saved, d7) ? NMP_AMXINT8 : 0);
}
#endif
