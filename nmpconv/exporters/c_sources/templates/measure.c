/* Says how long a run of each model takes, in microseconds, and how much of the arena it needs. */
#include <stdio.h>

@INCLUDES@

#if defined(ESP_PLATFORM)
#include "esp_timer.h"
static uint32_t microseconds(void) {
  return (uint32_t)esp_timer_get_time();
}
#elif defined(__ZEPHYR__)
#include <zephyr/kernel.h>
static uint32_t microseconds(void) {
  return k_cyc_to_us_floor32(k_cycle_get_32());
}
#else /* put your board's timer here: few C libraries of boards have a clock */
#include <time.h>
static uint32_t microseconds(void) {
  return (uint32_t)((double)clock() * 1e6 / CLOCKS_PER_SEC);
}
#endif

#define RUNS 10

static const struct {
  const char *name;
  const unsigned char *data;
  size_t bytes;
} models[] = {
@MODELS@
};

@ARENA@

static int measure(size_t m) {
  nmp_net *net;
  nmp_info info;
  uint32_t least = UINT32_MAX;
  nmp_status status = nmp_create@SPLIT@(&net, models[m].data, models[m].bytes, @FAST@&arena, sizeof(arena), NULL, NULL);
  if (status == NMP_OK) {
    status = nmp_inspect(models[m].data, models[m].bytes, NULL, &info, NULL);
  }
  if (status != NMP_OK) {
    printf("%s: %s\n", models[m].name, nmp_status_text(status));
    return 1;
  }
  for (int i = 0; i < RUNS; i++) { /* time does not depend on the input */
    const uint32_t start = microseconds();
    nmp_run(net);
    const uint32_t taken = microseconds() - start;
    least = taken < least ? taken : least;
  }
  printf("%s: %lu us, arena %lu bytes\n", models[m].name, (unsigned long)least, (unsigned long)info.arena_bytes);
  return 0;
}

static int example(void) {
  int wrong = 0;
  for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
    wrong |= measure(m);
  }
  return wrong;
}
