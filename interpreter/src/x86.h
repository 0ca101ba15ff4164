/* What the levels of x86-64 share. Their files are part of every build and empty for other CPUs; each function of
 * theirs is compiled for its own instruction set, whatever the compiler was told for the rest.
 */
#ifndef NMP_X86_H
#define NMP_X86_H

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(NMP_NO_X86)
#define NMP_X86

/* Bits of nmp_x86_features. */
#define NMP_AVX2 1u
#define NMP_AVXVNNI 2u    /* the dot products of VNNI, 256 bits, VEX */
#define NMP_AVX512VNNI 4u /* F, BW, DQ, VL and VNNI */
#define NMP_AVX512VBMI 8u /* permutes bytes; no level of its own */

/* What this machine has and its operating system saves. */
unsigned nmp_x86_features(void);

/* The functions between BEGIN and END are compiled for the target, a list like "avx2,avxvnni". */
#define NMP_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define NMP_TARGET_BEGIN(target_) \
  NMP_PRAGMA(clang attribute push(__attribute__((target(target_))), apply_to = function))
#define NMP_TARGET_END _Pragma("clang attribute pop")
#else
#define NMP_TARGET_BEGIN(target_) _Pragma("GCC push_options") NMP_PRAGMA(GCC target(target_))
#define NMP_TARGET_END _Pragma("GCC pop_options")
#endif
/* All of a loop whose bounds are constants where it is inlined. */
#ifndef __clang__
#define NMP_UNROLL _Pragma("GCC unroll 64")
#elif __has_feature(address_sanitizer)
#define NMP_UNROLL /* it would compile for minutes */
#else
#define NMP_UNROLL _Pragma("clang loop unroll(full)")
#endif
/* Keeps a value in one register: compilers that see more of its life may give it two, and the rest to memory. */
#define NMP_KEEP(where, value) __asm__("" : where(value))
#define NMP_INLINE inline __attribute__((always_inline))
#define NMP_TARGET_AVX2 "avx2"
#define NMP_TARGET_AVXVNNI "avx2,avxvnni"
#define NMP_TARGET_AVX512VBMI "avx512f,avx512bw,avx512vbmi"
#define NMP_TARGET_AVX512VNNI "avx2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"

/* conv_depthwise.h: NULL for other convolutions */
nmp_conv_choose_fn nmp_depthwise_avx2, nmp_depthwise_avxvnni, nmp_depthwise_avx512vnni;

void nmp_kernels_avx2(nmp_kernels *kernels);
void nmp_kernels_avxvnni(nmp_kernels *kernels);
void nmp_kernels_avx512vnni(nmp_kernels *kernels);
void nmp_kernels_avx512vbmi(nmp_kernels *kernels); /* in addition, where the machine has it */

#endif
#endif
