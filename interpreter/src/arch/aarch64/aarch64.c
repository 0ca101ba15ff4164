#include "arch/aarch64/level.h"

#ifdef NMP_AARCH64
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#define LINUX_ASIMDDP (1ul << 20) /* HWCAP_ASIMDDP, which old headers do not have */

unsigned nmp_aarch64_features(void) {
#if defined(__ARM_FEATURE_DOTPROD)
  return NMP_DOTPROD;
#elif defined(__linux__)
  return getauxval(AT_HWCAP) & LINUX_ASIMDDP ? NMP_DOTPROD : 0;
#elif defined(__APPLE__)
  int found = 0;
  size_t bytes = sizeof(found);
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &found, &bytes, NULL, 0) == 0 && found ? NMP_DOTPROD : 0;
#else
  return 0;
#endif
}
#endif
