/* A vector of MVE is one of its lanes here: the instructions that the kernels use take lanes apart from each other. */
#ifndef PROOFS_ARM_MVE_H
#define PROOFS_ARM_MVE_H

#include <stdint.h>

typedef int8_t int8x16_t;
typedef int16_t int16x8_t;
typedef int32_t int32x4_t;
typedef uint16_t mve_pred16_t;

int8_t vdupq_n_s8(int8_t a);
int16_t vdupq_n_s16(int16_t a);
int32_t vdupq_n_s32(int32_t a);

#endif
