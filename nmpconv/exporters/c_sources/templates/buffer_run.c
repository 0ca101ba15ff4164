static void run_@NAME@(void) {
  nmp_net *net;
  nmp_view view;
  if (nmp_create@SPLIT@(&net, @NAME@_data, @MACRO@_BYTES, @FAST@&arena, sizeof(arena), NULL, NULL) != NMP_OK) {
    print_result("@NAME@", -1, 0);
    return;
  }
@FILLS@
  nmp_run(net); /* once for each new buffer */
  nmp_output(net, 0, &view);
  const long best = largest(&view);
  print_result("@NAME@", best, element(&view, best));
}
