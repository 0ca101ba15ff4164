/* Frames of the device link: 00 COBS(type, seq, payload, CRC-32) 00, numbers little-endian. See PROTOCOL.md. */
#ifndef NMP_FRAME_H
#define NMP_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define FRAME_PAYLOAD 268 /* 256 bytes of data and the largest header */
#define FRAME_OVERHEAD 7  /* type, seq, CRC-32 */
#define FRAME_DECODED (FRAME_PAYLOAD + FRAME_OVERHEAD)
#define FRAME_ENCODED (FRAME_DECODED + FRAME_DECODED / 254 + 1)

typedef struct frame {
  uint8_t type;
  uint16_t seq;
  const uint8_t *payload; /* in the parser, until its next byte */
  size_t bytes;
} frame;

typedef struct frame_parser {
  uint8_t buffer[FRAME_ENCODED];
  size_t used;    /* more than the buffer holds: too long, to be dropped */
  uint32_t zeros; /* since the last right frame */
} frame_parser;

/* Takes one byte of the line. True when it ended a frame that is whole and right; all else is dropped silently. */
int frame_push(frame_parser *parser, uint8_t byte, frame *found);

/* Writes the frame's bytes, both zeros included, to a buffer of FRAME_ENCODED + 2; returns how many.
 * bytes <= FRAME_PAYLOAD. */
size_t frame_encode(uint8_t *to, uint8_t type, uint16_t seq, const uint8_t *payload, size_t bytes);

/* The CRC-32 of zlib: continues crc (0 at the start). */
uint32_t frame_crc32(uint32_t crc, const void *data, size_t bytes);

uint16_t frame_u16(const uint8_t *from);
uint32_t frame_u32(const uint8_t *from);
uint8_t *frame_put(uint8_t *to, uint64_t value, size_t bytes); /* returns the place after it */

#endif
