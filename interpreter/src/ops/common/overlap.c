/* The result is computed band by band, each by a call of the kernel whose input and output lie apart; so nothing is
 * asked of the order in which a kernel reads and writes. Lines are rows, or pixels where a pixel sees only one. Bands
 * begin at the first line and go down when the result lies before the input, at the last one and go up when it lies
 * behind. Each is as large as it can be without touching what it or a later one reads.
 */
#include "ops/common/overlap.h"

#include "dispatch.h"

#define BANDS_MAX 64 /* of a legal plan */

typedef struct lines {
  nmp_axis v;
  uint32_t x, y; /* bytes of a line */
  int64_t at;    /* where the result begins, from the input */
  int pixels, up;
} lines;

/* The output lines [first, last). */
typedef struct band {
  int32_t first, last;
} band;

static int is_pointwise(const nmp_axis *a) {
  return a->kernel == 1 && a->stride == 1 && a->before == 0 && a->after == 0;
}

static lines lines_of(const nmp_conv *c) {
  const uint32_t x = (uint32_t)c->in << c->x_wide, y = (uint32_t)c->out << c->y_wide;
  if (is_pointwise(&c->v) && is_pointwise(&c->h)) {
    const int32_t pixels = c->v.out * c->h.out;
    return (lines){.v = nmp_axis_of_pixels(pixels), .x = x, .y = y, .at = c->over, .pixels = 1, .up = 0};
  }
  return (lines){
      .v = c->v, .x = x * (uint32_t)c->h.in, .y = y * (uint32_t)c->h.out, .at = c->over, .pixels = 0, .up = 0};
}

/* The input lines [read_from, read_to) are those that output lines [first, last) see. */
static int32_t read_from(const lines *l, int32_t first) {
  const int32_t line = nmp_pixel(&l->v, first, 0);
  return line < 0 ? 0 : line;
}

static int32_t read_to(const lines *l, int32_t last) {
  const int32_t line = nmp_pixel(&l->v, last - 1, l->v.kernel - 1) + 1;
  return line > l->v.in ? l->v.in : line;
}

/* The band after so many lines; first == last: there can be none. */
static band next(const lines *l, int32_t done) {
  const int32_t end = l->v.out - done;
  if (l->up) {
    const int64_t kept = (int64_t)l->x * (uint32_t)read_to(l, end) - l->at + (l->y - 1); /* below 2^32 */
    const uint32_t first = kept < 0 ? 0 : (uint32_t)kept / l->y;
    return (band){.first = first < (uint32_t)end ? (int32_t)first : end, .last = end};
  }
  const int64_t room = (int64_t)l->x * (uint32_t)read_from(l, done) - l->at;
  const uint32_t last = room < 0 ? 0 : (uint32_t)room / l->y;
  return (band){.first = done,
                .last = last < (uint32_t)done       ? done
                        : last < (uint32_t)l->v.out ? (int32_t)last
                                                    : l->v.out};
}

static int is_whole(const lines *l) {
  int32_t done = 0;
  for (int bands = 0; bands < BANDS_MAX && done < l->v.out; bands++) {
    const band b = next(l, done);
    if (b.first == b.last) {
      return 0;
    }
    done += b.last - b.first;
  }
  return done == l->v.out;
}

/* The band that is computed: of pixels a multiple of four, which is what kernels take at once. */
static band next_even(const lines *l, int32_t done) {
  band b = next(l, done);
  const int32_t n = b.last - b.first, odd = l->pixels && n > 4 && done + n < l->v.out ? n % 4 : 0;
  if (l->up) {
    b.first += odd;
  } else {
    b.last -= odd;
  }
  return b;
}

/* The lines in the direction that is legal, if one is. */
static int open(const nmp_conv *c, lines *l) {
  *l = lines_of(c);
  /* Every window holds a line. */
  const int seen = nmp_pixel(&l->v, 0, l->v.kernel - 1) >= 0 && nmp_pixel(&l->v, l->v.out - 1, 0) < l->v.in;
  if (c->images != 1 || !seen) {
    return 0;
  }
  if (!is_whole(l)) {
    l->up = 1;
    return is_whole(l);
  }
  return 1;
}

int nmp_overlap_legal(const nmp_conv *c) {
  lines l;
  return open(c, &l);
}

/* The band as a convolution of its own. */
static nmp_conv band_conv(const nmp_conv *c, const lines *l, band b) {
  int32_t from;
  nmp_conv p = *c;
  p.v = nmp_axis_part(&l->v, b.first, b.last, &from);
  if (c->x) {
    p.x = (const uint8_t *)c->x + (size_t)from * l->x;
    p.y = (uint8_t *)c->y + (size_t)b.first * l->y;
  }
  if (l->pixels) { /* one row of them */
    p.h = p.v;
    p.v = nmp_axis_of_pixels(1);
  }
  return p;
}

static const nmp_conv_kernel *kernel_of(const nmp_conv *c) {
  return NMP_IN_USE(c->kernels).conv(c);
}

static size_t scratch_of(const nmp_conv *c) {
  const nmp_conv_kernel *kernel = kernel_of(c);
  return kernel->scratch ? kernel->scratch(c) : 0;
}

int nmp_overlap_packs(const nmp_conv *c) {
  lines l;
  int found = kernel_of(c)->packed != NULL;
  for (int32_t done = 0, legal = open(c, &l); legal && done < l.v.out && !found;) {
    const band b = next_even(&l, done);
    const nmp_conv p = band_conv(c, &l, b);
    found = kernel_of(&p)->packed != NULL;
    done += b.last - b.first;
  }
  return found;
}

/* Scratch of a plan that is right. */
static size_t overlap_scratch(const nmp_conv *c) {
  lines l;
  size_t most = 0;
  (void)open(c, &l);
  for (int32_t done = 0; done < l.v.out;) {
    const band b = next_even(&l, done);
    const nmp_conv p = band_conv(c, &l, b);
    const size_t bytes = scratch_of(&p);
    most = bytes > most ? bytes : most;
    done += b.last - b.first;
  }
  return most;
}

static void overlap_run(const nmp_conv *c, size_t task, size_t tasks) {
  lines l;
  (void)task;
  (void)tasks;
  (void)open(c, &l);
  for (int32_t done = 0; done < l.v.out;) {
    const band b = next_even(&l, done);
    const nmp_conv p = band_conv(c, &l, b);
    kernel_of(&p)->run(&p, 0, 1);
    done += b.last - b.first;
  }
}

const nmp_conv_kernel nmp_overlap_kernel = {.scratch = overlap_scratch, .run = overlap_run};
