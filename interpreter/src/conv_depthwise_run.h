/* What kernels of depthwise convolutions call run_rows for: a task's rows, or those that somebody asks for. */
static void run(const nmp_conv *c, size_t task, size_t tasks) {
  const size_t all = c->images * (size_t)c->v.out, first = all * task / tasks;
  if (!is_plain(c)) {
    run_rows(c, first, all * (task + 1) / tasks, (uint8_t *)c->y + (first * (size_t)c->h.out * c->out << c->y_wide));
  } else if (task == 0) {
    nmp_conv_portable(c)->run(c, 0, 1);
  }
}

static void rows(const nmp_conv *c, size_t first, size_t last) {
  if (!is_plain(c)) {
    run_rows(c, first, last, (uint8_t *)c->y);
  } else {
    const nmp_conv part = nmp_conv_rows(c, (int32_t)first, (int32_t)last);
    nmp_conv_portable(c)->run(&part, 0, 1);
  }
}
