/* Memory behind a program in RAM: half for the model, half the arena. Fewer ops leave more. */
#ifndef NMP_BOARD_RP2_H
#define NMP_BOARD_RP2_H

#include <stdint.h>

extern uint8_t __program_end[];

#define FREE (((uint32_t)(uintptr_t)__program_end + 63u) & ~63u)
#define MODEL_ADDRESS FREE
#define MODEL_BYTES (((RAM_END - FREE) / 2u) & ~63u)
#define ARENA_ADDRESS (MODEL_ADDRESS + MODEL_BYTES)
#define ARENA_BYTES MODEL_BYTES

#endif
