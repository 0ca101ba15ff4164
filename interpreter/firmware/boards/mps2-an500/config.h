/* mps2-an500: Cortex-M7. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#include "mps2.h"

#define BOARD "mps2-an500"
#define CPU "Cortex-M7"
#define MODEL_ADDRESS 0x60000000u

#endif
