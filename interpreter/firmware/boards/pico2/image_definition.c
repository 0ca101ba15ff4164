/* By this the boot ROM of an RP2350 knows a program, and where its vectors are: a loop of one block.
 * RP2350 data sheet, 5.9.3 (items) and 5.9.5 (what an image has to have). */
#include <stdint.h>

extern const uint32_t __vectors[];

__attribute__((section(".boot"), used)) static const struct {
  uint32_t begin, type, has_vectors;
  const uint32_t *vectors;
  uint32_t last, next, end;
} image_definition = {
    0xFFFFDED3u, 0x10210142u, /* 1 word: a program for Arm, secure, RP2350 */
    0x00000203u,              /* 2 words: its vectors */
    __vectors,   0x000003FFu, /* 3 words of items in all */
    0,                        /* the next block is this one */
    0xAB123579u,
};
