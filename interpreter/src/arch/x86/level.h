/* Declarations that the levels of x86-64 share. Their files are part of every build and empty for other CPUs; each
 * function of theirs is compiled for its own instruction set, whatever the compiler was told for the rest.
 */
#ifndef NMP_ARCH_X86_LEVEL_H
#define NMP_ARCH_X86_LEVEL_H

#include "base/isa.h"
#include "kernels/kernels.h"

#if defined(__x86_64__) && defined(__GNUC__) && !NMP_FIXED_CPU
#define NMP_X86

/* Bits of nmp_x86_features. */
#define NMP_SSE41 1u       /* with SSSE3 */
#define NMP_PCLMUL 2u      /* products without carries; no level of its own */
#define NMP_AVX2 4u        /* with those */
#define NMP_AVXVNNI 8u     /* the dot products of VNNI, 256 bits, VEX */
#define NMP_AVX512VNNI 16u /* F, BW, DQ, VL and VNNI */
#define NMP_AVX512VBMI 32u /* permutes bytes; no level of its own */
#define NMP_AMXINT8 64u    /* tiles of bytes, where the operating system lets this process use them */

/* The compiler and the assembler know AMX, and an operating system can be asked for it; or the tiles are emulated. */
#if defined(NMP_AMX_EMULATED) || (defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11))
#define NMP_AMX
#endif

/* Features that this machine has and its operating system saves. */
unsigned nmp_x86_features(void);

#define NMP_ISA_SSE41 "sse4.1"
#define NMP_ISA_PCLMUL "sse2,pclmul"
#define NMP_ISA_AVX2 "avx2,pclmul"
#define NMP_ISA_AVXVNNI "avx2,pclmul,avxvnni"
#define NMP_ISA_AVX512VBMI "avx512f,avx512bw,avx512vbmi"
#ifdef NMP_AMX_EMULATED
#define NMP_ISA_AMX "sse2"
#else
#define NMP_ISA_AMX NMP_ISA_AVX512VNNI ",amx-tile,amx-int8"
#endif
#define NMP_ISA_AVX512VNNI "avx2,pclmul,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"

/* Dense convolutions; and conv/depthwise/depthwise.inc: NULL for others */
nmp_conv_choose_fn nmp_conv_sse41, nmp_conv_avx2, nmp_conv_avxvnni, nmp_conv_avx512vnni;
nmp_conv_choose_fn nmp_conv_amx; /* NULL for those that it leaves to others */
nmp_conv_choose_fn nmp_depthwise_sse41, nmp_depthwise_avx2, nmp_depthwise_avxvnni, nmp_depthwise_avx512vnni;

nmp_crc_fn nmp_crc32_x86;

void nmp_kernels_sse41(nmp_kernels *kernels);
void nmp_kernels_avx2(nmp_kernels *kernels);
void nmp_kernels_avxvnni(nmp_kernels *kernels);
void nmp_kernels_avx512vnni(nmp_kernels *kernels);
void nmp_kernels_amx(nmp_kernels *kernels);        /* after those */
void nmp_kernels_avx512vbmi(nmp_kernels *kernels); /* in addition, where the machine has it */

#endif
#endif
