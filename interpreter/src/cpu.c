#include "cpu.h"

#include <string.h>

#include "dsp.h"
#include "mve.h"
#include "nmp.h"
#include "rv32.h"
#include "rvv.h"
#include "x86.h"

/* From the plainest to the best; each overwrites what it does better, so that every kernel is always there. */
static const struct level {
  const char *name;
  unsigned needs; /* features of the CPU */
  void (*fill)(nmp_kernels *kernels);
} levels[] = {
    {"portable", 0, nmp_kernels_portable},
#ifdef NMP_DSP
    {"dsp", 0, nmp_kernels_dsp},
#endif
#ifdef NMP_MVE
    {"mve", 0, nmp_kernels_mve},
#endif
#ifdef NMP_RV32
    {"rv32", 0, nmp_kernels_rv32},
#endif
#ifdef NMP_RVV
    {"rvv", 0, nmp_kernels_rvv},
#endif
#ifdef NMP_X86
    {"avx2", NMP_AVX2, nmp_kernels_avx2},
    {"avxvnni", NMP_AVXVNNI, nmp_kernels_avxvnni},
    {"avx512vnni", NMP_AVX512VNNI, nmp_kernels_avx512vnni},
#endif
};

#define LEVELS (sizeof(levels) / sizeof(levels[0]))

static unsigned features(void) {
#ifdef NMP_X86
  return nmp_x86_features();
#else
  return 0;
#endif
}

const char *nmp_cpu_select(const char *name, nmp_kernels *kernels) {
  const unsigned found = features();
  const char *last = NULL;
  for (size_t i = 0; i < LEVELS; i++) {
    if ((levels[i].needs & ~found) == 0) {
      last = levels[i].name;
      levels[i].fill(kernels);
      if (name && strcmp(name, last) == 0) {
        return last;
      }
    }
  }
  return name ? NULL : last;
}

const char *nmp_cpu_level(size_t i) {
  const unsigned found = features();
  for (size_t k = 0; k < LEVELS; k++) {
    if ((levels[k].needs & ~found) == 0 && i-- == 0) {
      return levels[k].name;
    }
  }
  return NULL;
}
