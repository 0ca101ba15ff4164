#include "arch/aarch64/level.h"

#ifdef NMP_AARCH64
#include <string.h>

#include "conv/conv.h"

NMP_ISA_BEGIN(NMP_ISA_DOTPROD)

/* CPUs with dot products have the instructions for this checksum, too. */
static NMP_CRC(fast_crc) {
  uint64_t eight;
  crc = ~crc;
  for (; bytes >= sizeof(eight); bytes -= sizeof(eight), data += sizeof(eight)) {
    memcpy(&eight, data, sizeof(eight));
    __asm__("crc32x %w0, %w0, %x1" : "+r"(crc) : "r"(eight));
  }
  for (; bytes > 0; bytes--, data++) {
    __asm__("crc32b %w0, %w0, %w1" : "+r"(crc) : "r"(*data));
  }
  return ~crc;
}

NMP_ISA_END

static const nmp_conv_kernel *neondot_choose(const nmp_conv *c) {
  const nmp_conv_kernel *depthwise = nmp_depthwise_neondot(c);
  return depthwise ? depthwise : nmp_conv_neondot(c);
}

/* In addition to those of neon. */
void nmp_kernels_neondot(nmp_kernels *kernels) {
  kernels->crc = fast_crc;
  kernels->conv = neondot_choose;
}
#endif
