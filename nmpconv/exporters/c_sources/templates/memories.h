#define @MACRO@_FAST_ARENA_BYTES @FAST@ /* of these, in a fast memory, for nmp_create_split */
#define @MACRO@_SLOW_ARENA_BYTES @SLOW@ /* the others */
#ifndef @MACRO@_FAST_MEMORY
#define @MACRO@_FAST_MEMORY /* says where a buffer lies: __attribute__((section(".dtcm"))) */
#endif
#ifndef @MACRO@_SLOW_MEMORY
#define @MACRO@_SLOW_MEMORY /* __attribute__((section(".sdram"))) */
#endif
