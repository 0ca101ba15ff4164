/* mps2-an386: Cortex-M4. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#include "mps2.h"

#define BOARD "mps2-an386"
#define CPU "Cortex-M4"
#define MODEL_ADDRESS 0x21000000u

#endif
