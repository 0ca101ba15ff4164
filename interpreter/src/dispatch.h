/* The kernels in use, and the level that the compiler's instruction set has besides the portable one. With
 * NMP_FIXED_CPU they are a constant that compilers see through, of which no table is left: an index that is not
 * constant becomes a condition between functions, and the linker keeps those that can be called. Else they are in a
 * table that nmp_cpu_select fills. This header and dispatch.c are the only files that know arch/.
 */
#ifndef NMP_DISPATCH_H
#define NMP_DISPATCH_H

#include "kernels/kernels.h"
#if defined(NMP_RVV)
#include "arch/rvv/level.h"
#elif defined(__riscv) || defined(__XTENSA__)
#include "arch/plain32/level.h"
#elif defined(__arm__)
#include "arch/cortex_m/level.h"
#include "arch/plain32/level.h"
#endif

/* Each level's list overrides what it does better than the portable kernels. */
#if defined(NMP_DSP)
#define NMP_LEVEL "dsp"
#define NMP_LEVEL_KERNELS NMP_PORTABLE_KERNELS(nmp_), NMP_DSP_KERNELS
#elif defined(NMP_MVE)
#define NMP_LEVEL "mve"
#define NMP_LEVEL_KERNELS NMP_PORTABLE_KERNELS(nmp_), NMP_MVE_KERNELS
#elif defined(NMP_RVV)
#define NMP_LEVEL "rvv"
#define NMP_LEVEL_KERNELS NMP_PORTABLE_KERNELS(nmp_), NMP_RVV_KERNELS
#elif defined(NMP_PLAIN32)
#define NMP_LEVEL "plain32"
#define NMP_LEVEL_KERNELS NMP_PORTABLE_KERNELS(nmp_), NMP_PLAIN32_KERNELS
#else
#define NMP_LEVEL_KERNELS NMP_PORTABLE_KERNELS(nmp_)
#endif

#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
static const nmp_kernels nmp_level_kernels = {NMP_LEVEL_KERNELS};
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif

/* NMP_BY_2(NMP_IN_USE(op->kernels).gemm, x_wide, w_wide): a member by its widths. */
#if NMP_FIXED_CPU
#define NMP_IN_USE(kernels) nmp_level_kernels
#define NMP_BY_1(member, a) ((a) ? (member)[1] : (member)[0])
#define NMP_BY_2(member, a, b) ((a) ? NMP_BY_1((member)[1], b) : NMP_BY_1((member)[0], b))
#define NMP_BY_3(member, a, b, c) ((a) ? NMP_BY_2((member)[1], b, c) : NMP_BY_2((member)[0], b, c))
#else
#define NMP_IN_USE(kernels) (*(kernels))
#define NMP_BY_1(member, a) ((member)[a])
#define NMP_BY_2(member, a, b) ((member)[a][b])
#define NMP_BY_3(member, a, b, c) ((member)[a][b][c])
#endif

/* Fills kernels (but not with NMP_FIXED_CPU) up to the level of this name, NULL: the best one of this machine. Returns
 * the level's own name; NULL when this build or machine does not have it.
 */
const char *nmp_cpu_select(const char *name, nmp_kernels *kernels);

#if !NMP_FIXED_CPU
/* Fills kernels with those of another machine (nmp_target), which tell what they need and cannot be run. Returns 0
 * where the name is none.
 */
int nmp_target_select(const char *name, nmp_kernels *kernels);
#endif

#endif
