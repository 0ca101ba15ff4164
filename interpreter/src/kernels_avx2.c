#include "conv_x86.h"

#ifdef NMP_X86
void nmp_kernels_avx2(nmp_kernels *kernels) {
  kernels->conv = nmp_conv_avx2;
}
#endif
