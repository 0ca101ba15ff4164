/* Which functions of the interpreter ran, for a process that loads it and this before it: clang's
 * -fsanitize-coverage=inline-8bit-counters,pc-table calls these when the library is loaded.
 */
#include <stdint.h>

const uint8_t *counters_first, *counters_last;
const uintptr_t *places_first, *places_last; /* of each counter: an address, and 1 where a function begins */

void __sanitizer_cov_8bit_counters_init(const uint8_t *first, const uint8_t *last) {
  counters_first = first;
  counters_last = last;
}

void __sanitizer_cov_pcs_init(const uintptr_t *first, const uintptr_t *last) {
  places_first = first;
  places_last = last;
}
