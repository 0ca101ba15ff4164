/* MAC/s of one core in vpdpbusd alone, operands in registers: what no convolution by this instruction exceeds. */
#define _POSIX_C_SOURCE 199309L
#include <cpuid.h>
#include <immintrin.h>
#include <stdio.h>
#include <time.h>

enum { CHAINS = 12, STEPS = 1 << 18, ROUNDS = 40, LANES_512 = 64, LANES_256 = 32 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Independent chains, more than latency times throughput; `asm` keeps the compiler from folding them. */
#define PEAK(NAME, TARGET, TYPE, SET, DOT)                        \
  __attribute__((target(TARGET))) static void NAME(void) {        \
    TYPE sums[CHAINS], a = SET(1), b = SET(2);                    \
    _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) {   \
      sums[i] = SET(i);                                           \
    }                                                             \
    for (int step = 0; step < STEPS; step++) {                    \
      _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) { \
        sums[i] = DOT(sums[i], a, b);                             \
        __asm__ volatile("" : "+v"(sums[i]));                     \
      }                                                           \
    }                                                             \
  }

PEAK(avx512vnni, "avx512f,avx512vnni", __m512i, _mm512_set1_epi32, _mm512_dpbusd_epi32)
PEAK(avxvnni, "avx2,avxvnni", __m256i, _mm256_set1_epi32, _mm256_dpbusd_avx_epi32)

/* The fastest of many short rounds. */
static double best(void (*run)(void), int lanes) {
  double least = 1e9;
  for (int i = 0; i < ROUNDS; i++) {
    const double start = now();
    run();
    const double seconds = now() - start;
    least = seconds < least ? seconds : least;
  }
  return (double)CHAINS * STEPS * lanes / least;
}

int main(void) {
  unsigned eax, ebx, ecx, edx;
  if (__builtin_cpu_supports("avx512vnni")) {
    printf("%.0f\n", best(avx512vnni, LANES_512));
  } else if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) &&
             (eax >> 4 & 1)) { /* not every compiler knows the name */
    printf("%.0f\n", best(avxvnni, LANES_256));
  } else {
    return 1;
  }
  return 0;
}
