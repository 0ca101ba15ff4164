#include "conv_x86.h"

#ifdef NMP_X86
void nmp_kernels_avx512vnni(nmp_kernels *kernels) {
  kernels->conv = nmp_conv_avx512vnni;
}
#endif
