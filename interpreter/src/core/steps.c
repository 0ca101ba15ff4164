#include "core/steps.h"

#include "base/util.h"

#if NMP_KEEP_STEPS
void nmp_steps_make(const nmp_model *m, nmp_step *steps, uint8_t *packed, const nmp_step *shared) {
  for (uint32_t i = 0; i < m->ops.count; i++) {
    nmp_step *s = &steps[i];
    s->fused = (nmp_fused){.count = 1};
    nmp_model_op(m, i, &s->op);
    s->threads = *m->options;
    s->op.threads = &s->threads;
    if (s->op.type->conv) {
      s->op.call = &s->call;
      s->call = nmp_conv_decide(&s->op);
      if (shared) {
        s->call.conv.packed = shared[i].call.conv.packed;
      } else {
        nmp_conv_pack(&s->call, packed);
        packed += nmp_round_up(nmp_conv_packed(&s->call), NMP_PACK_ALIGN);
      }
    }
  }
}

void nmp_step_limit(nmp_step *first, size_t threads) {
  size_t tasks = 1;
  for (uint32_t i = 0; i < first->fused.count; i++) {
    nmp_step *s = &first[i];
    s->threads.threads = threads;
    if (s->op.type->conv) {
      s->call.tasks = nmp_conv_tasks(&s->op, &s->call);
      tasks = nmp_max(tasks, s->call.tasks);
    }
  }
  if (first->fused.by_rows.tasks > 0) {
    first->fused.by_rows.tasks = nmp_min(tasks, first->fused.by_rows.rows);
  }
}

void nmp_steps_run(const nmp_model *m, const nmp_step *steps, uint32_t first, uint32_t last) {
  (void)m;
  for (uint32_t i = first; i < last;) {
    const nmp_step *s = &steps[i];
    const uint32_t ops = nmp_step_ops(s);
    if (ops > 1 && ops <= last - i) {
      s->fused.run(s);
      i += ops;
    } else {
      s->op.type->run(&s->op);
      i++;
    }
  }
}
#else
void nmp_steps_run(const nmp_model *m, const nmp_step *steps, uint32_t first, uint32_t last) {
  nmp_op op;
  (void)steps;
  for (uint32_t i = first; i < last; i++) {
    nmp_model_op(m, i, &op);
    op.type->run(&op);
  }
}
#endif
