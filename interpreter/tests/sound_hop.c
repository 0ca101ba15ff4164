/* Ticks of a board's counter for one hop of sound, with a bundle of a model called heard: samples heard, the frame, its
 * integers in the input.
 */
#include <heard_data.h>
#include <stdio.h>

#include "board.h"
#include "memory.h"
#include "nmp_sound.h"

#define SAMPLES (HEARD_INPUT_0_WINDOW + 4 * HEARD_INPUT_0_HOP)

static HEARD_ALIGNED uint8_t arena[HEARD_ARENA_BYTES], memory[HEARD_INPUT_0_SOUND_BYTES], input[HEARD_INPUT_0_BYTES];
static int16_t pcm[SAMPLES];
static int32_t numbers[HEARD_INPUT_0_BANDS];

int main(void) {
  (void)tail(A, 0); /* a board starts here */
  agent_config board = {0};
  nmp_net *net;
  nmp_sound *sound;
  uint32_t random = 1;
  uint64_t ticks = 0;
  board_memory(&board);
  for (size_t i = 0; i < SAMPLES; i++) {
    random = random * 1664525u + 1013904223u;
    pcm[i] = (int16_t)(random >> 16);
  }
  nmp_status status = nmp_create(&net, heard_data, HEARD_BYTES, arena, sizeof arena, NULL, NULL);
  if (status == NMP_OK) {
    status = nmp_sound_create(&sound, net, 0, memory, sizeof memory);
  }
  for (size_t at = 0;
       status == NMP_OK && at < SAMPLES;) { /* the first frame takes a window of samples, the last a hop */
    board_cycles(1);
    at += nmp_sound_hear(sound, pcm + at, SAMPLES - at);
    if (nmp_sound_ready(sound)) {
      nmp_sound_frame(sound, numbers);
      nmp_sound_put(sound, numbers, input);
    }
    ticks = board_cycles(0);
  }
  printf("hz %lu\nticks %lu\nstatus %d\n", (unsigned long)board.counter_hz, (unsigned long)ticks, (int)status);
  return 0;
}
