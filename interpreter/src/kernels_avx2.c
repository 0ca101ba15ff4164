#include "x86.h"

#ifdef NMP_X86
void nmp_kernels_avx2(nmp_kernels *kernels) {
  (void)kernels;
}
#endif
