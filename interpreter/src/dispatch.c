#include "dispatch.h"

#include "nmp.h"
#if !NMP_FIXED_CPU
#include "arch/aarch64/level.h"
#include "arch/cortex_m/level.h"
#include "arch/plain32/level.h"
#include "arch/wasm/level.h"
#include "arch/x86/level.h"
#endif

static int equal(const char *a, const char *b) {
  for (; *a && *a == *b; a++, b++) {
  }
  return *a == *b;
}

/* From the plainest to the best; each overwrites what it does better, so that every kernel is always there. */
typedef struct level {
  const char *name;
  unsigned needs; /* features of the CPU */
  void (*fill)(nmp_kernels *kernels);
} level;

#if NMP_FIXED_CPU
#ifndef NMP_LEVEL
#define NMP_LEVEL "portable"
#endif
static const level levels[] = {{NMP_LEVEL, 0, NULL}}; /* called directly (dispatch.h) */
#else
#ifdef NMP_LEVEL
static void fill_level(nmp_kernels *kernels) {
  *kernels = nmp_level_kernels;
}
#endif

static const level levels[] = {
    {"portable", 0, nmp_kernels_portable},
#ifdef NMP_LEVEL
    {NMP_LEVEL, 0, fill_level},
#endif
#ifdef NMP_X86
    {"sse41", NMP_SSE41, nmp_kernels_sse41},
    {"avx2", NMP_AVX2, nmp_kernels_avx2},
    {"avxvnni", NMP_AVXVNNI, nmp_kernels_avxvnni},
    {"avx512vnni", NMP_AVX512VNNI, nmp_kernels_avx512vnni},
#ifdef NMP_AMX
    {"amx", NMP_AMXINT8, nmp_kernels_amx},
#endif
#endif
#ifdef NMP_AARCH64
    {"neon", 0, nmp_kernels_neon},
    {"neondot", NMP_DOTPROD, nmp_kernels_neondot},
    {"i8mm", NMP_DOTPROD | NMP_I8MM, nmp_kernels_i8mm},
#endif
#ifdef NMP_WASM
    {"simd128", 0, nmp_kernels_simd128},
#endif
};

#endif

#define LEVELS (sizeof(levels) / sizeof(levels[0]))

static unsigned features(void) {
#ifdef NMP_X86
  return nmp_x86_features();
#elif defined(NMP_AARCH64)
  return nmp_aarch64_features();
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
      if (levels[i].fill) {
        levels[i].fill(kernels);
      }
      if (name && equal(name, last)) {
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

#if !NMP_FIXED_CPU
/* Machines whose builds have NMP_FIXED_CPU and keep no steps. */
static const struct target {
  const char *name;
  uint8_t address;
  nmp_conv_choose_fn *conv;
} targets[] = {
    {"cortex-m0plus", 4, nmp_conv_plain32_plan}, {"cortex-m3", 4, nmp_conv_plain32_plan},
    {"cortex-m4", 4, nmp_conv_dsp_plan},         {"cortex-m55", 4, nmp_conv_mve_plan},
    {"rv32", 4, nmp_conv_plain32_plan},          {"portable-32", 4, nmp_conv_portable},
    {"portable-64", 8, nmp_conv_portable},
};

#define TARGETS (sizeof(targets) / sizeof(targets[0]))

const char *nmp_target(size_t i) {
  return i < TARGETS ? targets[i].name : NULL;
}

int nmp_target_select(const char *name, nmp_kernels *kernels) {
  for (size_t i = 0; i < TARGETS; i++) {
    if (equal(name, targets[i].name)) {
      nmp_kernels_portable(kernels);
      kernels->conv = targets[i].conv;
      kernels->address = targets[i].address;
      return 1;
    }
  }
  return 0;
}
#endif
