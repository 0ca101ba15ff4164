#include "frame.h"

#include <string.h>

uint32_t frame_crc32(uint32_t crc, const void *data, size_t bytes) {
  static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                     0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  const uint8_t *p = data;
  crc = ~crc;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= p[i];
    crc = table[crc & 15] ^ (crc >> 4);
    crc = table[crc & 15] ^ (crc >> 4);
  }
  return ~crc;
}

uint16_t frame_u16(const uint8_t *from) {
  return (uint16_t)(from[0] | from[1] << 8);
}

uint32_t frame_u32(const uint8_t *from) {
  return frame_u16(from) | (uint32_t)frame_u16(from + 2) << 16;
}

uint8_t *frame_put(uint8_t *to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    *to++ = (uint8_t)value;
    value >>= 8;
  }
  return to;
}

/* Decodes COBS in place, which only ever moves bytes down; 0 for what is no COBS. */
static size_t decode(uint8_t *data, size_t bytes) {
  size_t from = 0, to = 0;
  while (from < bytes) {
    size_t code = data[from++];
    size_t run = code - 1; /* there are no zeros in the buffer */
    if (run > bytes - from) {
      return 0;
    }
    memmove(data + to, data + from, run);
    from += run;
    to += run;
    if (code < 255 && from < bytes) {
      data[to++] = 0;
    }
  }
  return to;
}

int frame_push(frame_parser *parser, uint8_t byte, frame *found) {
  if (byte != 0) {
    if (parser->used < FRAME_ENCODED) {
      parser->buffer[parser->used++] = byte;
    } else {
      parser->used = FRAME_ENCODED + 1;
    }
    return 0;
  }
  size_t used = parser->used;
  parser->used = 0;
  parser->zeros++;
  if (used == 0 || used > FRAME_ENCODED) {
    return 0;
  }
  size_t bytes = decode(parser->buffer, used);
  if (bytes < FRAME_OVERHEAD || bytes > FRAME_DECODED) {
    return 0;
  }
  if (frame_crc32(0, parser->buffer, bytes - 4) != frame_u32(parser->buffer + bytes - 4)) {
    return 0;
  }
  parser->zeros = 0;
  found->type = parser->buffer[0];
  found->seq = frame_u16(parser->buffer + 1);
  found->payload = parser->buffer + 3;
  found->bytes = bytes - FRAME_OVERHEAD;
  return 1;
}

typedef struct encoder {
  uint8_t *code; /* where the length of the current run belongs */
  uint8_t *next;
} encoder;

static void encode(encoder *e, uint8_t byte) {
  if (byte != 0) {
    *e->next++ = byte;
  }
  size_t length = (size_t)(e->next - e->code);
  if (byte == 0 || length == 255) {
    *e->code = (uint8_t)length;
    e->code = e->next++;
  }
}

size_t frame_encode(uint8_t *to, uint8_t type, uint16_t seq, const uint8_t *payload, size_t bytes) {
  uint8_t head[3], tail[4];
  frame_put(frame_put(head, type, 1), seq, 2);
  frame_put(tail, frame_crc32(frame_crc32(0, head, sizeof(head)), payload, bytes), 4);
  encoder e = {.code = to + 1, .next = to + 2};
  to[0] = 0;
  for (size_t i = 0; i < sizeof(head); i++) {
    encode(&e, head[i]);
  }
  for (size_t i = 0; i < bytes; i++) {
    encode(&e, payload[i]);
  }
  for (size_t i = 0; i < sizeof(tail); i++) {
    encode(&e, tail[i]);
  }
  *e.code = (uint8_t)(e.next - e.code);
  *e.next++ = 0;
  return (size_t)(e.next - to);
}
