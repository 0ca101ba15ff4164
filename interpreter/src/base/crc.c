#include "base/crc.h"

#include "base/fb.h"

#define FEW 1024 /* bytes: tables for eight at a time take longer to fill than these take without them */

#define STEP crc = crc >> 4 ^ table[crc & 15];

/* Four bits a step: a table of 64 bytes of flash. On a microcontroller this is most of what a start takes, so it goes
 * word by word: 7 instructions a byte of a Cortex-M4.
 */
static uint32_t by_nibbles(uint32_t crc, const uint8_t *data, size_t bytes) {
  static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                     0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  crc = ~crc;
  for (size_t words = (uintptr_t)data % 4 == 0 ? bytes / 4 : 0; words > 0; words--, data += 4, bytes -= 4) {
    crc ^= fb_load32(data);
    STEP STEP STEP STEP STEP STEP STEP STEP
  }
  for (; bytes > 0; bytes--, data++) {
    crc ^= *data;
    STEP STEP
  }
  return ~crc;
}

#if UINTPTR_MAX > 0xffffffffu

/* Eight bytes a step, with tables on the stack: 8 KiB are little on a host, and filling them takes microseconds. */
static uint32_t by_eights(uint32_t crc, const uint8_t *data, size_t bytes) {
  const uint32_t polynomial = 0xedb88320u;
  uint32_t table[8][256];
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; bit++) {
      c = c >> 1 ^ (c & 1 ? polynomial : 0);
    }
    table[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; i++) {
    for (int t = 1; t < 8; t++) {
      table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
    }
  }
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^ table[4][crc >> 24] ^
          table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
  }
  return by_nibbles(~crc, data, bytes);
}

uint32_t nmp_crc32(uint32_t crc, const uint8_t *data, size_t bytes) {
  return bytes < FEW ? by_nibbles(crc, data, bytes) : by_eights(crc, data, bytes);
}

#else

uint32_t nmp_crc32(uint32_t crc, const uint8_t *data, size_t bytes) {
  return by_nibbles(crc, data, bytes);
}

#endif
