#include "arch/aarch64/level.h"

#ifdef NMP_AARCH64
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

/* HWCAP_ASIMDDP and HWCAP2_I8MM, which old headers do not have. */
#define LINUX_ASIMDDP (1ul << 20)
#define LINUX_I8MM (1ul << 13)

#if defined(__APPLE__)
static int apple_has(const char *feature) {
  int found = 0;
  size_t bytes = sizeof(found);
  return sysctlbyname(feature, &found, &bytes, NULL, 0) == 0 && found;
}
#endif

static int has_dotprod(void) {
#if defined(__ARM_FEATURE_DOTPROD)
  return 1;
#elif defined(__linux__)
  return (getauxval(AT_HWCAP) & LINUX_ASIMDDP) != 0;
#elif defined(__APPLE__)
  return apple_has("hw.optional.arm.FEAT_DotProd");
#else
  return 0;
#endif
}

static int has_i8mm(void) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return 1;
#elif defined(__linux__)
  return (getauxval(AT_HWCAP2) & LINUX_I8MM) != 0;
#elif defined(__APPLE__)
  return apple_has("hw.optional.arm.FEAT_I8MM");
#else
  return 0;
#endif
}

unsigned nmp_aarch64_features(void) {
  return (has_dotprod() ? NMP_DOTPROD : 0) | (has_i8mm() ? NMP_I8MM : 0);
}
#endif
