/* Whole convolutions of every level against the portable kernel: random shapes, strides, paddings, dilations, groups,
 * widths, shifts, biases and extremes, in one and in several shares. Inputs, weights and packed weights end at a page
 * that cannot be read; outputs and scratch are compared with the bytes around them.
 *
 *   check_conv [--cases N] [--seed N] [level ...]     all levels of this machine when none is named
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conv.h"
#include "cpu.h"
#include "fixed.h"
#include "nmp.h"

#define SLOT (8u << 20) /* bytes of a buffer */
#define MARGIN 64       /* poisoned bytes in front of an output */
#define MOST 40000      /* elements of x, of w and of y */
#define SHARES 3
enum { X, W, BIAS, EXPONENTS, PAD, WANT, GOT, SCRATCH, PACKED, SLOTS };

static uint64_t state;

static uint32_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

static int32_t between(int32_t least, int32_t most) {
  return least + (int32_t)(next_random() % (uint32_t)(most - least + 1));
}

/* One of many small numbers, seldom a large one. */
static int32_t size_up_to(int32_t most) {
  const int32_t some = next_random() % 4 ? (most < 5 ? most : 5) : most;
  return between(1, some);
}

/* The last `bytes` bytes before a guard page, at a multiple of `align`. */
static void *tail(int slot, size_t bytes, size_t align) {
  static uint8_t *slots[SLOTS];
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (slots[slot] == NULL) {
    uint8_t *map = mmap(NULL, SLOT + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + SLOT, page, PROT_NONE) != 0) {
      perror("mmap");
      exit(2);
    }
    slots[slot] = map;
  }
  if (bytes + MARGIN > SLOT) {
    fprintf(stderr, "a buffer of %zu bytes is too large\n", bytes);
    exit(2);
  }
  return slots[slot] + SLOT - (bytes + align - 1) / align * align;
}

static void *poisoned(int slot, size_t bytes, size_t align) {
  uint8_t *at = tail(slot, bytes, align);
  memset(at - MARGIN, 0xA5, bytes + MARGIN);
  return at;
}

/* n integers of int8, int16 or int32: random, random of few bits, or only the extremes. */
static void *integers(int slot, size_t n, int bits) {
  uint8_t *data = tail(slot, n * (size_t)bits / 8, 1);
  const uint32_t fill = next_random() % 4, few = next_random() % (uint32_t)bits;
  for (size_t i = 0; i < n; i++) {
    const int32_t any = (int32_t)next_random() >> (32 - bits);
    const int32_t end = (int32_t)(UINT32_MAX >> (33 - bits));
    const int32_t value = fill == 0 ? (any & 1 ? end : -end - 1) : fill == 1 ? -end - 1 : fill == 2 ? any >> few : any;
    memcpy(data + i * (size_t)bits / 8, &value, (size_t)bits / 8);
  }
  return data;
}

static nmp_axis axis(int32_t most) {
  nmp_axis a;
  do {
    a.in = size_up_to(most);
    a.kernel = size_up_to(7);
    a.stride = size_up_to(4);
    a.dilation = next_random() % 4 ? 1 : size_up_to(4);
    a.before = next_random() % 2 ? (a.kernel - 1) / 2 : between(0, 5);
    a.after = next_random() % 2 ? a.before : between(0, 5);
  } while (a.in + a.before + a.after < a.dilation * (a.kernel - 1) + 1);
  a.out = (a.in + a.before + a.after - a.dilation * (a.kernel - 1) - 1) / a.stride + 1;
  return a;
}

static size_t elements(const nmp_conv *c, const nmp_axis *v, const nmp_axis *h, size_t channels, int out) {
  return (size_t)c->images * (size_t)(out ? v->out : v->in) * (size_t)(out ? h->out : h->in) * channels;
}

/* Dense, depthwise, with a multiplier, grouped, or a fully connected layer. */
static void choose_shape(nmp_conv *c) {
  do {
    const uint32_t kind = next_random() % 8;
    c->v = axis(kind == 0 ? 1 : 24);
    c->h = axis(24);
    c->images = next_random() % 8 ? 1 : 2;
    c->groups = kind < 4 ? (uint32_t)size_up_to(300) : kind < 6 ? 1 : (uint32_t)size_up_to(6);
    const uint32_t in = kind < 4 ? 1 : (uint32_t)size_up_to(130),
                   out = kind < 3 ? 1 : (uint32_t)size_up_to(kind < 4 ? 4 : 70);
    if (kind == 5) {
      c->v = (nmp_axis){1, 1, 1, 1, 1, 0, 0};
      c->h = (nmp_axis){c->h.in, c->h.in, 1, 1, 1, 0, 0};
    }
    c->in = c->groups * in;
    c->out = c->groups * out;
    c->k = (uint32_t)(c->v.kernel * c->h.kernel) * in;
  } while (elements(c, &c->v, &c->h, c->in, 0) > MOST || elements(c, &c->v, &c->h, c->out, 1) > MOST ||
           (size_t)c->out * c->k > MOST);
}

static void choose_numbers(nmp_conv *c) {
  static const uint8_t bias_bits[] = {8, 16, 32};
  c->x_wide = next_random() % 2;
  c->w_wide = next_random() % 2;
  c->y_wide = next_random() % 2;
  c->bias_bits = bias_bits[next_random() % 3];
  c->x = integers(X, elements(c, &c->v, &c->h, c->in, 0), 8 << c->x_wide);
  c->w = integers(W, (size_t)c->out * c->k, 8 << c->w_wide);
  c->bias = integers(BIAS, c->out, c->bias_bits);
  c->pad = next_random() % 2 ? integers(PAD, c->in, 8 << c->x_wide) : NULL;
  c->exponent_step = next_random() % 2;
  int8_t *exponents = tail(EXPONENTS, c->exponent_step ? c->out : 1, 1);
  /* Mostly shifts like those of real layers, where accumulators start with the bias; or any legal one. */
  const int usual = next_random() % 4 != 0, low = usual ? 5 + 4 * c->w_wide : NMP_SHIFT_MIN,
            high = usual ? 17 : NMP_SHIFT_MAX;
  c->shift = 10;
  for (size_t i = 0; i < (c->exponent_step ? c->out : 1); i++) {
    exponents[i] = (int8_t)(c->shift - between(low, high));
  }
  c->exponents = exponents;
  const int32_t end = c->y_wide ? 32767 : 127;
  c->lo = next_random() % 2 ? -end - 1 : between(-end - 1, 0);
  c->hi = next_random() % 2 ? end : between(0, end);
}

/* y of this conv, computed by the kernel that its level chooses, in `tasks` shares. */
static void compute(nmp_conv *c, int slot, size_t threads) {
  const nmp_conv_kernel *kernel = c->kernels->conv(c);
  const size_t bytes = elements(c, &c->v, &c->h, c->out, 1) << c->y_wide;
  const size_t tasks = threads > 1 && kernel->tasks ? kernel->tasks(c, threads) : 1;
  const size_t scratch = kernel->scratch ? kernel->scratch(c) : 0, packed = kernel->packed ? kernel->packed(c) : 0;
  if (tasks < 1 || tasks > threads) {
    printf("%zu tasks of %zu threads\n", tasks, threads);
    exit(1);
  }
  c->y = poisoned(slot, bytes, 2);
  c->scratch = poisoned(SCRATCH, scratch * tasks, 64);
  void *to = poisoned(PACKED, packed, 64);
  if (packed) {
    kernel->pack(c, to);
  }
  c->packed = packed ? to : NULL;
  for (size_t task = tasks; task-- > 0;) {
    kernel->run(c, task, tasks);
  }
  for (int slot_of = SCRATCH; slot_of <= PACKED; slot_of++) {
    const uint8_t *at = tail(slot_of, slot_of == SCRATCH ? scratch * tasks : packed, 64);
    for (size_t i = 1; i <= MARGIN; i++) {
      if (at[-(ptrdiff_t)i] != 0xA5) {
        printf("bytes in front of the %s are written\n", slot_of == SCRATCH ? "scratch" : "packed weights");
        exit(1);
      }
    }
  }
}

static void print(const nmp_conv *c, const char *level, unsigned number) {
  printf("case %u, %s: %ux[%d,%d,%u] k [%d,%d] stride [%d,%d] dilation [%d,%d] pad [%d,%d,%d,%d] out %u groups %u",
         number, level, c->images, c->v.in, c->h.in, c->in, c->v.kernel, c->h.kernel, c->v.stride, c->h.stride,
         c->v.dilation, c->h.dilation, c->v.before, c->v.after, c->h.before, c->h.after, c->out, c->groups);
  printf(" wide %d%d%d bias %d%s\n", c->x_wide, c->w_wide, c->y_wide, c->bias_bits, c->pad ? " padded" : "");
}

/* Whether a case is alike, and whether the level has a kernel of its own for it. */
static int alike(nmp_conv *c, const char *level, unsigned number, const nmp_kernels *portable, nmp_kernels *tested,
                 unsigned long *own) {
  int same = 1;
  c->kernels = portable;
  compute(c, WANT, 1);
  c->kernels = tested;
  *own += tested->conv(c) != portable->conv(c);
  for (size_t threads = 1; threads <= SHARES && same; threads += SHARES - 1) {
    const size_t bytes = elements(c, &c->v, &c->h, c->out, 1) << c->y_wide;
    compute(c, GOT, threads);
    same =
        memcmp((uint8_t *)tail(WANT, bytes, 2) - MARGIN, (uint8_t *)tail(GOT, bytes, 2) - MARGIN, bytes + MARGIN) == 0;
  }
  if (!same) {
    print(c, level, number);
  }
  return same;
}

static int run_level(const char *name, unsigned cases, unsigned seed) {
  unsigned long own = 0, differ = 0;
  nmp_kernels portable, tested;
  const char *level = nmp_cpu_select(name, &tested);
  if (level == NULL) {
    fprintf(stderr, "there is no CPU level '%s' here\n", name);
    return 2;
  }
  nmp_kernels_portable(&portable);
  for (unsigned i = 0; i < cases; i++) {
    nmp_conv c;
    state = 88172645463325252u + (uint64_t)(seed + i) * 2654435761u;
    for (int warm = 0; warm < 8; warm++) {
      next_random();
    }
    memset(&c, 0, sizeof(c));
    choose_shape(&c);
    choose_numbers(&c);
    differ += !alike(&c, level, seed + i, &portable, &tested, &own);
  }
  printf("%s: %u convolutions, %lu by kernels of its own, %lu differ\n", level, cases, own, differ);
  return differ > 0;
}

int main(int argc, char **argv) {
  unsigned cases = 2000, seed = 1;
  int named = 0, status = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--cases") == 0 && i + 1 < argc) {
      cases = (unsigned)atoi(argv[++i]);
    } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = (unsigned)atoi(argv[++i]);
    } else {
      named++;
      status |= run_level(argv[i], cases, seed);
    }
  }
  const char *name;
  for (size_t i = 0; named == 0 && (name = nmp_cpu_level(i)) != NULL; i++) {
    status |= run_level(name, cases, seed);
  }
  return status;
}
