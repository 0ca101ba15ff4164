#include "ops/common/parts.h"

#if !NMP_FIXED_CPU

#define PART_WORK 65536u /* less is not worth a part */

typedef struct parts {
  const nmp_op *op;
  const void *how;
  nmp_part_fn *part;
  size_t n, count;
} parts;

static void run_part(void *context, size_t i, size_t worker) {
  const parts *p = (const parts *)context;
  (void)worker;
  p->part(p->op, p->how, p->n * i / p->count, p->n * (i + 1) / p->count);
}

void nmp_run_parts(const nmp_op *op, size_t n, uint64_t work, nmp_part_fn *part, const void *how) {
  const size_t threads = op->threads->threads < n ? op->threads->threads : n;
  if (op->threads->parallel == NULL || threads < 2 || work < 2 * PART_WORK) {
    part(op, how, 0, n);
    return;
  }
  parts p = {op, how, part, n, work / PART_WORK < threads ? (size_t)(work / PART_WORK) : threads};
  op->threads->parallel(op->threads->pool, run_part, &p, p.count);
}
#endif
