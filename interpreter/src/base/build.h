/* Choices of a build. These are the defaults: everything that the instruction set allows. `nmpconv bundle` writes this
 * file anew for one model, and -D overrides one line. A file that needs more is refused with NMP_E_NOT_BUILT.
 */
#ifndef NMP_BASE_BUILD_H
#define NMP_BASE_BUILD_H

#include <stdint.h>

#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "nmpconv's models are little-endian and are read where they lie: big-endian processors are not supported"
#endif

#if SIZE_MAX < 0xffffffff
#error "nmpconv's interpreter counts bytes in 32 bits: processors with addresses of 16 bits are not supported"
#endif

/* Cortex-M with an FPU: gcc keeps integers in its registers, and then finds too few for the assembly of kernels. There
 * is no float here. Older than 9 it has no name for that.
 */
#if defined(__ARM_FP) && defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && !defined(__ARM_FEATURE_MVE) && \
    !defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 9
#pragma GCC target("general-regs-only")
#endif

/* 1: the kernels of the best CPU level that the compiler knows of, called directly. 0: chosen at create, for PCs. */
#ifndef NMP_FIXED_CPU
#if defined(__x86_64__) || defined(__aarch64__) || defined(_M_X64) || defined(_M_ARM64)
#define NMP_FIXED_CPU 0
#else
#define NMP_FIXED_CPU 1
#endif
#endif

/* RISC-V with vectors: version 1.0 of the extension, or a Zve64x part of it. NMP_NO_RVV leaves them out. */
#if defined(__riscv_v_intrinsic) && defined(__riscv_v_elen) && !defined(NMP_NO_RVV)
#if __riscv_v_elen >= 64
#define NMP_RVV
#endif
#endif

/* 1: the steps of a run are made once, at create, and kept in the arena with weights in the order of the kernels, where
 * memory is plenty. 0: a step is made when it is its turn, and weights are read as they are in the file.
 */
#ifndef NMP_KEEP_STEPS
#ifdef NMP_RVV
#define NMP_KEEP_STEPS 1
#else
#define NMP_KEEP_STEPS (!NMP_FIXED_CPU)
#endif
#endif

#if !NMP_FIXED_CPU && !NMP_KEEP_STEPS
#error "a build that chooses its CPU level at create keeps steps: NMP_KEEP_STEPS=0 is for NMP_FIXED_CPU=1"
#endif

/* 1: rare kernels are written once for all widths, for builds that are sent over a network. 0: once for each. */
#ifndef NMP_SMALL
#define NMP_SMALL 0
#endif

/* 1: a fault says which rule is broken and how. 0: its status, op and tensor alone, for files that were verified
 * before. */
#ifndef NMP_FAULT_DETAILS
#define NMP_FAULT_DETAILS 1
#endif

/* Bits of activations, and of weights: 8, 16, or 0 for both. */
#ifndef NMP_ACTIVATION_BITS
#define NMP_ACTIVATION_BITS 0
#endif
#ifndef NMP_WEIGHT_BITS
#define NMP_WEIGHT_BITS 0
#endif

/* The longest sum of products in a convolution. */
#ifndef NMP_CONV_K_MAX
#define NMP_CONV_K_MAX 131071
#endif

/* 1: kernels for depthwise convolutions. 0: they are computed as others with groups are. */
#ifndef NMP_CONV_DEPTHWISE
#define NMP_CONV_DEPTHWISE 1
#endif

/* 1: depthwise convolutions also of other kernels than three rows have kernels of their own. 0: they are computed as
 * others with groups are, for models that have none. */
#ifndef NMP_CONV_TAPS
#define NMP_CONV_TAPS NMP_CONV_DEPTHWISE
#endif

/* 1: softmax has kernels for lines of neighbours. 0: it goes element by element, in half a kilobyte less of code. */
#ifndef NMP_SOFTMAX_LINES
#define NMP_SOFTMAX_LINES 1
#endif

/* 1: all convolutions. 0: those that are matrix products of pixels as they are (1x1, fully connected). */
#ifndef NMP_CONV_WINDOWS
#define NMP_CONV_WINDOWS 1
#endif

/* 1: convolutions whose result is written over lines of the input that are no longer needed. */
#ifndef NMP_CONV_OVERLAP
#define NMP_CONV_OVERLAP 1
#endif

/* 1: also convolutions that a CPU's vectors leave to the portable kernels, for what 32 bits do not hold. */
#ifndef NMP_CONV_HARD
#define NMP_CONV_HARD 1
#endif

/* 1: convolutions that add the other operand of a residual sum. 2: the same by another pass, which is less code, where
 * steps are kept. */
#ifndef NMP_CONV_ADD
#define NMP_CONV_ADD 1
#endif

/* 1: convolutions clip int8 results to any range. 0: all results have all of int8, or its positive half where nothing
 * is added. */
#ifndef NMP_CONV_RANGES
#define NMP_CONV_RANGES 1
#endif

/* 1: products of one pixel alone are worth code of their own: those of fully connected layers, and of a last pixel. */
#ifndef NMP_CONV_SINGLE
#define NMP_CONV_SINGLE 1
#endif

/* 1: inputs may be states. */
#ifndef NMP_STATES
#define NMP_STATES 1
#endif

/* 1: files say how sound becomes their input (nmp_sound.h). 0: nobody reads that. */
#ifndef NMP_SOUND
#define NMP_SOUND 1
#endif

/* 1: models with a part of their arena in a fast memory of its own, for nmp_create_split. 0: they lie in one arena. */
#ifndef NMP_TWO_MEMORIES
#define NMP_TWO_MEMORIES (!NMP_FIXED_CPU)
#endif

/* 1: custom ops, which the program brings: rows of nmp_options.custom, or X(row) for each one that is compiled in. */
#ifndef NMP_CUSTOM
#define NMP_CUSTOM 1
#endif
#ifndef NMP_BUILD_CUSTOM
#define NMP_BUILD_CUSTOM(X)
#endif

/* The ops, a part of NMP_OPS (gen/nmp_params.h). */
#ifndef NMP_BUILD_OPS
#define NMP_BUILD_OPS NMP_OPS
#endif

/* 1: quotients of int8 have a kernel of their own. Pages in browsers have no room for it. */
#ifndef NMP_DIVIDE_KERNEL
#ifdef __wasm__
#define NMP_DIVIDE_KERNEL 0
#else
#define NMP_DIVIDE_KERNEL !NMP_FIXED_CPU
#endif
#endif

#endif
