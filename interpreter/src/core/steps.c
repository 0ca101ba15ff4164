#include "core/steps.h"

#include "base/util.h"

#if NMP_KEEP_STEPS
void nmp_steps_make(const nmp_model *m, nmp_step *steps, uint8_t *packed) {
  for (uint32_t i = 0; i < m->ops.count; i++) {
    nmp_step *s = &steps[i];
    s->fused = (nmp_fused){.count = 1};
    nmp_model_op(m, i, &s->op);
    if (s->op.type->conv) {
      s->op.call = &s->call;
      s->call = nmp_conv_decide(&s->op);
      nmp_conv_pack(&s->call, packed);
      packed += nmp_round_up(nmp_conv_packed(&s->call), NMP_PACK_ALIGN);
    }
  }
}

void nmp_steps_run(const nmp_model *m, const nmp_step *steps, uint32_t first, uint32_t last) {
  (void)m;
  for (uint32_t i = first; i < last;) {
    const nmp_step *s = &steps[i];
    if (s->fused.count > 1 && s->fused.count <= last - i) {
      s->fused.run(s);
      i += s->fused.count;
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
