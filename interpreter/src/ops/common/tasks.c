#include "ops/common/tasks.h"

#if !NMP_FIXED_CPU

#define TASK_WORK 65536u /* less is not worth a task */

typedef struct tasks {
  const nmp_op *op;
  const void *how;
  nmp_range_fn *run;
  size_t n, count;
} tasks;

static void run_task(void *context, size_t i, size_t worker) {
  const tasks *t = (const tasks *)context;
  (void)worker;
  t->run(t->op, t->how, t->n * i / t->count, t->n * (i + 1) / t->count);
}

void nmp_run_tasks(const nmp_op *op, size_t n, uint64_t work, nmp_range_fn *run, const void *how) {
  const size_t threads = op->threads->threads < n ? op->threads->threads : n;
  if (op->threads->parallel == NULL || threads < 2 || work / 2 < TASK_WORK) {
    run(op, how, 0, n);
    return;
  }
  tasks t = {.op = op, .how = how, .run = run, .n = n};
  t.count = work / TASK_WORK < threads ? (size_t)(work / TASK_WORK) : threads;
  op->threads->parallel(op->threads->pool, run_task, &t, t.count);
}
#endif
