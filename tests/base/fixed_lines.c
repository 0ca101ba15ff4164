/* Computes fixed.h on lines of "function a b": r for nmp_rsh, d for nmp_div, s for nmp_sat to [-b, b]. */
#include <inttypes.h>
#include <stdio.h>

#include "base/fixed.h"

int main(void) {
  char function;
  int64_t a, b;
  printf("%d %d %d %d\n", NMP_EXPONENT_MIN, NMP_EXPONENT_MAX, NMP_SHIFT_MIN, NMP_SHIFT_MAX);
  while (scanf(" %c %" SCNd64 " %" SCNd64, &function, &a, &b) == 3) {
    const int64_t y = function == 'r'   ? nmp_rsh(a, (int)b)
                      : function == 'd' ? nmp_div(a, b)
                                        : nmp_sat(a, (int32_t)-b, (int32_t)b);
    printf("%" PRId64 "\n", y);
  }
  return 0;
}
