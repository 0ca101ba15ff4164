/* mps2-an385-m0plus: the machine of mps2-an385 with the instructions of a Cortex-M0+ alone. */
#ifndef NMP_BOARD_CONFIG_H
#define NMP_BOARD_CONFIG_H

#include "mps2.h"

#define BOARD "mps2-an385-m0plus"
#define CPU "Cortex-M0+"
#define MODEL_ADDRESS 0x21000000u

#endif
