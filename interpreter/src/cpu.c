#include "cpu.h"

#include <string.h>

#include "dsp.h"
#include "mve.h"
#include "nmp.h"
#include "rv32.h"

/* From the plainest to the best; each overwrites what it does better, so that every kernel is always there. */
static const struct level {
  const char *name;
  void (*fill)(nmp_kernels *kernels);
} levels[] = {
    {"portable", nmp_kernels_portable},
#ifdef NMP_DSP
    {"dsp", nmp_kernels_dsp},
#endif
#ifdef NMP_MVE
    {"mve", nmp_kernels_mve},
#endif
#ifdef NMP_RV32
    {"rv32", nmp_kernels_rv32},
#endif
};

#define LEVELS (sizeof(levels) / sizeof(levels[0]))

const char *nmp_cpu_select(const char *name, nmp_kernels *kernels) {
  for (size_t i = 0; i < LEVELS; i++) {
    levels[i].fill(kernels);
    if (name ? strcmp(name, levels[i].name) == 0 : i == LEVELS - 1) {
      return levels[i].name;
    }
  }
  return NULL;
}

const char *const *nmp_cpus(void) {
  static const char *const names[] = {"portable",
#ifdef NMP_DSP
                                      "dsp",
#endif
#ifdef NMP_MVE
                                      "mve",
#endif
#ifdef NMP_RV32
                                      "rv32",
#endif
                                      NULL};
  return names;
}
