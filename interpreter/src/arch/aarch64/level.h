/* Declarations that the levels of AArch64 share, as arch/x86/level.h does for x86-64: their files are part of every
 * build and empty elsewhere. NEON is always there; dot products of bytes and products of matrices of bytes are asked
 * for at run time.
 */
#ifndef NMP_ARCH_AARCH64_LEVEL_H
#define NMP_ARCH_AARCH64_LEVEL_H

#include "base/isa.h"
#include "kernels/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN) && !NMP_FIXED_CPU
#define NMP_AARCH64

/* Bits of nmp_aarch64_features. */
#define NMP_DOTPROD 1u /* sdot */
#define NMP_I8MM 2u    /* smmla */

unsigned nmp_aarch64_features(void);

#ifdef __clang__
#define NMP_ISA_DOTPROD "dotprod,crc"
#define NMP_ISA_I8MM "dotprod,i8mm"
#else
#define NMP_ISA_DOTPROD "arch=armv8.2-a+dotprod" /* the least that has it, with crc; what arm_neon.h asks for */
#define NMP_ISA_I8MM "arch=armv8.2-a+dotprod+i8mm"
#endif

/* Dense convolutions; and depthwise.inc: NULL for others */
nmp_conv_choose_fn nmp_conv_neon, nmp_conv_neondot, nmp_conv_neondot_words, nmp_conv_i8mm;
nmp_conv_choose_fn nmp_depthwise_neon, nmp_depthwise_neondot;

void nmp_kernels_neon(nmp_kernels *kernels);
void nmp_kernels_neondot(nmp_kernels *kernels);
void nmp_kernels_i8mm(nmp_kernels *kernels);

#endif
#endif
