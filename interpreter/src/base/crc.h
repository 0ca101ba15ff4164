/* CRC-32 (the one of zlib, PNG and Ethernet). */
#ifndef NMP_BASE_CRC_H
#define NMP_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc (0 at the start) over bytes of data. */
uint32_t nmp_crc32(uint32_t crc, const uint8_t *data, size_t bytes);

#endif
