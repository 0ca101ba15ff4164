/* @TITLE@: written by nmpconv bundle. */
#include "nmp.h" /* of this bundle; refuses those of others */
#if defined(__cplusplus) && __cplusplus >= 201103L
#include "nmp.hpp"
#endif
#ifndef @MACRO@_DATA_H
#define @MACRO@_DATA_H

#ifdef __cplusplus
extern "C" {
#endif

#define @MACRO@_BYTES @BYTES@
#define @MACRO@_ARENA_BYTES @ARENA@ /* enough RAM for a run; nmp_inspect tells what this build needs to the byte */
#define @MACRO@_STACK_BYTES @STACK@ /* nmp_create and nmp_run take at most, on Cortex-M with DSP or vectors, by gcc */
#define @MACRO@_SUSPENDED_BYTES @SUSPENDED@ /* enough for nmp_suspend, while another model uses the arena */
@MEMORIES@@PORTS@
#define @MACRO@_HAS_TEST_VECTOR @VECTORS@

/* The model and the arena begin at multiples of 16. */
#if defined(__GNUC__) || defined(__clang__)
#define @MACRO@_ALIGNED __attribute__((aligned(16)))
#elif defined(_MSC_VER)
#define @MACRO@_ALIGNED __declspec(align(16))
#elif defined(__ICCARM__)
#define @MACRO@_ALIGNED _Pragma("data_alignment=16")
#else
#error "tell this compiler how to align @NAME@_data to 16 bytes"
#endif

extern const unsigned char @NAME@_data[@MACRO@_BYTES];

#ifdef __cplusplus
}
#endif

#endif
