/* The types of C99 for the translator: PROOFS_ADDRESS is 32 on microcontrollers. */
#ifndef PROOFS_STDINT_H
#define PROOFS_STDINT_H

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define INT8_MIN (-128)
#define INT8_MAX 127
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_MAX 9223372036854775807LL
#define UINT64_MAX 18446744073709551615ULL

#if PROOFS_ADDRESS == 32
typedef unsigned int uintptr_t;
#define UINTPTR_MAX UINT32_MAX
#define SIZE_MAX UINT32_MAX
#else
typedef unsigned long long uintptr_t;
#define UINTPTR_MAX UINT64_MAX
#define SIZE_MAX UINT64_MAX
#endif

#endif
