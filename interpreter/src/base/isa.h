/* Functions for one instruction set, whatever the compiler was told for the rest. */
#ifndef NMP_BASE_ISA_H
#define NMP_BASE_ISA_H

/* The functions between BEGIN and END are compiled for this instruction set, a list like "avx2,avxvnni". */
#define NMP_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define NMP_ISA_BEGIN(isa_) NMP_PRAGMA(clang attribute push(__attribute__((target(isa_))), apply_to = function))
#define NMP_ISA_END _Pragma("clang attribute pop")
#else
#define NMP_ISA_BEGIN(isa_) _Pragma("GCC push_options") NMP_PRAGMA(GCC target(isa_))
#define NMP_ISA_END _Pragma("GCC pop_options")
#endif
/* All of a loop whose bounds are constants where it is inlined. */
#if defined(__SANITIZE_ADDRESS__)
#define NMP_UNROLL /* it would compile for minutes */
#elif !defined(__OPTIMIZE__)
#define NMP_UNROLL /* gcc would warn that it ignores this */
#elif !defined(__clang__)
#define NMP_UNROLL _Pragma("GCC unroll 64")
#elif __has_feature(address_sanitizer)
#define NMP_UNROLL /* likewise */
#else
#define NMP_UNROLL _Pragma("clang loop unroll(full)")
#endif
/* Keeps a value in one register: compilers that see more of its life may give it two, and the rest to memory. */
#define NMP_KEEP(where, value) __asm__("" : where(value))
#define NMP_INLINE inline __attribute__((always_inline))

#endif
