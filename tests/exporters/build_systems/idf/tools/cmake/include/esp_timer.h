/* In place of ESP-IDF's timer: each reading is 7 microseconds after the one before it. */
#include <stdint.h>

static inline int64_t esp_timer_get_time(void) {
  static int64_t now;
  return now += 7;
}
