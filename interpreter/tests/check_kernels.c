/* Every kernel of every level against the portable one: random and extreme inputs, every short length, all
 * misalignments that a type allows. Inputs end at a page that cannot be read, outputs are compared with the bytes
 * around them.
 *
 *   check_kernels [--bench] [level ...]     all levels of this machine when none is named
 *
 * The portable kernels run beside those of each other level; against themselves where they are named, or alone.
 */
#include "check_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dispatch.h"
#include "nmp.h"

const char *level = "portable";
int benchmark;
nmp_kernels portable, tested;
static unsigned long long compared, failed;
static const size_t lengths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,  16,  17,  18,  19,  23,
                                 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 255, 257, 600};

uint32_t next_random(void) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

void *integers(int slot, size_t n, int wide, int fill) {
  void *data = tail(slot, n << wide);
  for (size_t i = 0; i < n; i++) {
    const int value = fill == RANDOM ? (int)next_random() : fill == LOWEST ? -32768 : 32767;
    if (wide) {
      ((int16_t *)data)[i] = (int16_t)value;
    } else {
      ((int8_t *)data)[i] = (int8_t)(fill == RANDOM ? value : value >> 8);
    }
  }
  return data;
}

void *poisoned(int slot, size_t bytes) {
  memset(tail(slot, bytes + MARGIN), 0xA5, bytes + MARGIN);
  return tail(slot, bytes);
}

void compare(const char *kernel, int widths, size_t n, size_t bytes) {
  compared++;
  if (memcmp(tail(WANT, bytes + MARGIN), tail(GOT, bytes + MARGIN), bytes + MARGIN) != 0) {
    failed++;
    printf("%s: %s, widths %d, length %zu differs from portable\n", level, kernel, widths, n);
  }
}

double seconds(void) {
#if __STDC_HOSTED__ && !defined(__wasm__)
  return (double)clock() / CLOCKS_PER_SEC;
#else
  return 0; /* neither boards nor WebAssembly measure */
#endif
}

/* Runs a kernel of the tested level until a twentieth of a second is over and prints elements (or products) per ns. */
#define BENCH(name, widths, steps, call)                                                                             \
  do {                                                                                                               \
    double begin = seconds(), took;                                                                                  \
    unsigned long long runs = 0;                                                                                     \
    do {                                                                                                             \
      for (int i = 0; i < 100; i++) {                                                                                \
        call;                                                                                                        \
      }                                                                                                              \
      runs += 100;                                                                                                   \
      took = seconds() - begin;                                                                                      \
    } while (took < 0.05);                                                                                           \
    printf("%-10s %-11s widths %d  %8.3f /ns\n", level, name, widths, (double)runs * (double)(steps) / took * 1e-9); \
  } while (0)

/* The same call for both levels, on poisoned outputs; or the tested one by the clock. */
#define EACH(name, widths, n, steps, bytes, MEMBER, ...)             \
  do {                                                               \
    void *want = poisoned(WANT, bytes), *got = poisoned(GOT, bytes); \
    if (benchmark) {                                                 \
      BENCH(name, widths, steps, tested.MEMBER(got, __VA_ARGS__));   \
    } else {                                                         \
      portable.MEMBER(want, __VA_ARGS__);                            \
      tested.MEMBER(got, __VA_ARGS__);                               \
      compare(name, widths, n, bytes);                               \
    }                                                                \
  } while (0)

static void check_gemm(size_t k, int fill) {
  static const size_t shapes[][2] = {{8, 32}, {1, 1}, {1, 7}, {2, 5}, {3, 4}, {4, 3}, {5, 2}, {7, 9}};
  for (size_t s = 0; s < (benchmark ? 1 : COUNT(shapes)); s++) {
    const size_t rows = shapes[s][0], channels = shapes[s][1], stride = k + (benchmark ? 0 : s % 3);
    for (int wx = 0; wx < 2; wx++) {
      for (int ww = 0; ww < 2; ww++) {
        const void *x = integers(A, (rows - 1) * stride + k, wx, fill), *w = integers(B, channels * k, ww, fill);
        EACH("gemm", wx * 2 + ww, k, rows * channels * k, rows * channels * (NMP_WIDE_SUM(wx, ww) ? 8 : 4),
             gemm[wx][ww], x, stride, w, k, rows, channels);
      }
    }
  }
}

static void check_depthwise(size_t n, int fill) {
  for (size_t taps = benchmark ? 9 : 1; taps <= 9; taps += 4) {
    for (int wx = 0; wx < 2; wx++) {
      for (int ww = 0; ww < 2; ww++) {
        const uint8_t *x = integers(A, n * taps, wx, fill);
        const void *w = integers(B, n * taps, ww, fill), *pointers[9];
        for (size_t t = 0; t < taps; t++) {
          pointers[t] = x + ((n * (t * 4 % taps)) << wx);
        }
        EACH("depthwise", wx * 2 + ww, n, n * taps, n * (NMP_WIDE_SUM(wx, ww) ? 8 : 4), depthwise[wx][ww], pointers, w,
             taps, n);
      }
    }
  }
}

static void check_scale(size_t n, int fill) {
  const size_t rows = 3, stride = n + 2;
  int8_t *shift = tail(TABLE, n);
  int32_t *bias = tail(B, n * 4);
  for (size_t c = 0; c < n; c++) {
    shift[c] = (int8_t)((int)(next_random() % 63) - 15);
    bias[c] = fill == RANDOM ? (int32_t)next_random() >> next_random() % 32 : fill == LOWEST ? INT32_MIN : INT32_MAX;
  }
  for (int wide = 0; wide < 2; wide++) {
    int64_t *sums = tail(A, rows * n * (wide ? 8 : 4));
    for (size_t i = 0; i < rows * n; i++) {
      const int64_t most = ((int64_t)1 << (wide ? 47 : 31)) - 1;
      const int64_t any =
          (int64_t)(((uint64_t)next_random() << 32 | next_random()) & (uint64_t)(2 * most + 1)) - most - 1;
      const int64_t sum = fill == RANDOM ? any >> next_random() % 47 : fill == LOWEST ? -most - 1 : most;
      if (wide) {
        sums[i] = sum;
      } else {
        ((int32_t *)(void *)sums)[i] = (int32_t)sum;
      }
    }
    for (int wy = 0; wy < 2; wy++) {
      const int32_t most = wy ? 32767 : 127;
      EACH("scale", wide * 2 + wy, n, rows * n, ((rows - 1) * stride + n) << wy, scale[wide][wy], stride, sums, rows, n,
           bias, shift, -most / 2, most);
    }
  }
}

static void check_elementwise(size_t n, int fill) {
  static const int exponents[][3] = {{0, 0, 1},   {3, 0, 5},   {0, 14, 30}, {15, 0, 9},
                                     {0, 30, 31}, {0, 1, -15}, {0, 0, 47},  {0, 0, 0}};
  for (int w = 0; w < 8; w++) {
    const int wa = w >> 2, wb = w >> 1 & 1, wy = w & 1;
    const int32_t hi = wy ? 32767 : 127, lo = -hi - 1;
    const void *a = integers(A, n, wa, fill), *b = integers(B, n, wb, fill);
    for (size_t e = 0; e < (benchmark ? 1 : COUNT(exponents)); e++) {
      for (size_t steps = benchmark ? 3 : 1; steps < 4; steps++) {
        const nmp_binary how = {.a_step = steps & 1,
                                .b_step = steps >> 1,
                                .a_shift = exponents[e][0],
                                .b_shift = exponents[e][1],
                                .shift = exponents[e][2],
                                .lo = lo,
                                .hi = e % 2 ? hi : hi / 2};
        EACH("add", w, n, n, n << wy, add[wa][wb][wy], a, b, n, &how);
        EACH("sub", w, n, n, n << wy, sub[wa][wb][wy], a, b, n, &how);
        EACH("mul", w, n, n, n << wy, mul[wa][wb][wy], a, b, n, &how);
      }
      if (wb == 0) {
        EACH("requantize", wa * 2 + wy, n, n, n << wy, requantize[wa][wy], a, n, exponents[e][2], lo / 2, hi);
      }
    }
  }
}

/* One of a table: any number, one that y has, one of the largest of which 2^k fit into int32, or none above 0. */
static int32_t of_table(size_t kind, int k) {
  const int32_t any = (int32_t)next_random();
  switch (kind) {
    case 0:
      return any;
    case 1:
      return any >> (k + 1);
    case 2:
      return (INT32_MAX >> k) - (any & 127);
    default:
      return -(any & INT32_MAX);
  }
}

static void check_tables(size_t n, int fill) {
  for (int wy = 0; wy < 2; wy++) {
    const int32_t hi = wy ? 32767 : 127, lo = -hi - 1;
    for (int k = benchmark ? 7 : n < 600 ? 5 : 0; k < 8; k++) { /* fine tables are large */
      const size_t samples = ((size_t)65536 >> k) + 1, kind = next_random() % 4;
      int32_t *table = tail(TABLE, samples * 4);
      for (size_t i = 0; i < samples; i++) {
        table[i] = of_table(kind, k);
      }
      const int16_t *x = integers(A, n, 1, fill);
      EACH("interpolate", wy, n, n, n << wy, interpolate[wy], x, table, n, k, lo, hi / 2);
    }
    const void *x = integers(A, n, 0, fill), *table = integers(TABLE, 256, wy, RANDOM);
    EACH("lookup", wy, n, n, n << wy, lookup[wy], x, table, n, lo, hi);
  }
}

/* 16 x 16 pixels of int8 are the most that add up in int16. */
static void check_windows(size_t n, int fill) {
  static const size_t sides[] = {3, 1, 2, 16, 17};
  for (int wide = 0; wide < 2; wide++) {
    for (size_t s = 0; s < (benchmark ? 1 : COUNT(sides)); s++) {
      const size_t side = sides[s];
      const size_t column = n * 2, row = column * side + n, last = (side - 1) * (row + column) + n;
      const nmp_pixels window = {integers(A, last, wide, fill), side, side, row, column};
      EACH("max", wide, n, n * side * side, n << wide, max[wide], &window, n);
      EACH("sum", wide, n, n * side * side, n * 4, sum[wide], &window, n);
    }
  }
}

#include "check_planes.inc"

/* From every place in a line of a cache, and over the lengths at which a fast one changes its ways. */
static void check_crc(size_t n, int fill) {
  const size_t more = n % 7 * 64;
  for (size_t bytes = n; bytes <= n + more; bytes += 64) {
    const uint8_t *data = integers(A, bytes, 0, fill);
    const uint32_t start = next_random(), want = portable.crc(start, data, bytes), got = tested.crc(start, data, bytes);
    memcpy(poisoned(WANT, sizeof(want)), &want, sizeof(want));
    memcpy(poisoned(GOT, sizeof(got)), &got, sizeof(got));
    compare("crc", 0, bytes, sizeof(got));
  }
}

/* A group of n elements, and exponentials of a table that falls. */
static void check_lines(size_t n, int fill) {
  int32_t *table = tail(B, 512 * 4), *w = tail(TABLE, 2 * n * 4);
  for (size_t i = 0; i < 512; i++) {
    table[i] = i % 256 == 0 ? 1 << 30 : (int32_t)((1u << 30) / (i % 256 + 1) - next_random() % 1024);
  }
  for (size_t i = 0; i < 2 * n; i++) {
    w[i] = (int32_t)next_random() >> 9;
  }
  for (int wide = 0; wide < 2; wide++) {
    const void *x = integers(A, n, wide, fill);
    int64_t *want = poisoned(WANT, 16), *got = poisoned(GOT, 16);
    portable.moments[wide](want, want + 1, x, n);
    tested.moments[wide](got, got + 1, x, n);
    compare("moments", wide, n, 16);
    const nmp_normalizer how = {.n = (int64_t)n,
                                .sum = want[0],
                                .inverse = 1 << 29,
                                .normalize = 20 + 8 * wide,
                                .scale = 26,
                                .w_step = n % 2,
                                .lo = -100,
                                .hi = 120};
    for (int wy = 0; wy < 2; wy++) {
      EACH("normalize", wide * 2 + wy, n, n, n << wy, normalize[wide][wy], x, w, w + n, n, &how);
    }
    const int32_t most[2] = {portable.largest[wide](x, n), tested.largest[wide](x, n)};
    memcpy(poisoned(WANT, 4), &most[0], 4);
    memcpy(poisoned(GOT, 4), &most[1], 4);
    compare("largest", wide, n, 4);
    const int64_t sums[2] = {portable.exponentials[wide](poisoned(WANT, n * 4), x, table, n, most[0]),
                             tested.exponentials[wide](poisoned(GOT, n * 4), x, table, n, most[0])};
    compare("exponentials", wide, n, n * 4);
    memcpy(poisoned(WANT, 8), &sums[0], 8);
    memcpy(poisoned(GOT, 8), &sums[1], 8);
    compare("sum of exponentials", wide, n, 8);
    int32_t *e = tail(PAD, n * 4);
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
      sum += e[i] = i == 0 ? 1 << 30 : (int32_t)(next_random() >> 2);
    }
    const int up = 16 - (int)(n % 17);
    for (size_t i = 1; i < n; i += 2) { /* at a tie, or 1 above */
      const uint64_t most_of_all = ((uint64_t)1 << (30 + up)) / (uint64_t)sum;
      const uint64_t tie = (2 * (next_random() % (most_of_all + 1)) + 1) * (uint64_t)sum >> (up + 1);
      e[i] = tie < (uint64_t)1 << 30 ? (int32_t)(tie + next_random() % 2) : 1 << 30;
    }
    const uint32_t inverse = (uint32_t)(((uint64_t)1 << 62) / (2 * (uint64_t)sum));
    EACH("quotients", wide, n, n, n << wide, quotients[wide], e, n, up, (uint64_t)sum, inverse, 1, wide ? 32767 : 127);
  }
}

static void (*const checks[])(size_t n, int fill) = {
    check_gemm,    check_depthwise, check_scale,     check_elementwise, check_tables, check_windows,
    check_resize,  check_crc,       check_transpose, check_moved,       check_lines,
#if !NMP_FIXED_CPU
    check_columns,
#endif
#if NMP_DIVIDE_KERNEL
    check_divide,
#endif
};

/* itself: 0 for its name alone. */
static int run_level(const char *name, int itself) {
  level = nmp_cpu_select(name, &tested);
  if (level == NULL) {
    fprintf(stderr, "there is no CPU level '%s' here\n", name);
    return 2;
  }
  printf("%s, compiled by " __VERSION__ "\n", level);
  if (!itself) {
    return 0;
  }
#if __STDC_HOSTED__
  check_convs();
#endif
  for (size_t c = 0; c < COUNT(checks); c++) {
    for (size_t i = 0; i < (benchmark ? 1 : COUNT(lengths)); i++) {
      for (int fill = 0; fill < (benchmark ? 1 : FILLS); fill++) {
        checks[c](benchmark ? 256 : lengths[i], fill);
      }
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  int named = 0, status = 0;
#if !__STDC_HOSTED__
  argc = 0; /* a board has no command line */
#endif
  (void)tail(A, 0); /* a board starts here */
  nmp_kernels_portable(&portable);
  for (int i = 1; i < argc; i++) {
    benchmark |= strcmp(argv[i], "--bench") == 0;
  }
  for (int i = 1; i < argc && status == 0; i++) {
    if (strcmp(argv[i], "--bench") != 0) {
      named++;
      status = run_level(argv[i], 1);
    }
  }
  const char *name;
  for (size_t i = 0; named == 0 && status == 0 && (name = nmp_cpu_level(i)) != NULL; i++) {
    status = run_level(name, benchmark || i > 0 || nmp_cpu_level(1) == NULL);
  }
  if (!benchmark && status == 0) {
    printf("%llu comparisons, %llu differ\n", compared, failed);
  }
  return status ? status : failed > 0;
}
