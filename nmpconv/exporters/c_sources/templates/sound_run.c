/* Sound as it comes, in pieces of any size: frame by frame into the input, and a run after @STEPS@ of them. Says what
 * is heard whenever that changes.
 */
static void run_@NAME@(void) {
  static @MACRO@_ALIGNED unsigned char memory[@MACRO@_INPUT_@INPUT@_SOUND_BYTES];
  static @MACRO@_ALIGNED unsigned char frames[@MACRO@_INPUT_@INPUT@_BYTES]; /* a run may write over the input's own */
  static int32_t numbers[@MACRO@_INPUT_@INPUT@_BANDS];
  const int16_t *pcm = @NAME@_pcm_@INPUT@;
  const size_t count = sizeof(@NAME@_pcm_@INPUT@) / sizeof(*pcm);
  long heard = 0, before = -1;
  nmp_net *net;
  nmp_sound *sound;
  nmp_view view;
  if (nmp_create@SPLIT@(&net, @NAME@_data, @MACRO@_BYTES, @FAST@&arena, sizeof(arena), NULL, NULL) != NMP_OK ||
      nmp_sound_create(&sound, net, @INPUT@, memory, sizeof(memory)) != NMP_OK) {
    print_result("@NAME@", -1, 0);
    return;
  }
  for (size_t at = 0; at < count;) {
    at += nmp_sound_hear(sound, pcm + at, count - at);
    if (!nmp_sound_ready(sound)) {
      continue;
    }
    nmp_sound_frame(sound, numbers);
    nmp_sound_put(sound, numbers, frames);
    heard++;
    if (heard < @MACRO@_INPUT_@INPUT@_FRAMES || (heard - @MACRO@_INPUT_@INPUT@_FRAMES) % @STEPS@ != 0) {
      continue;
    }
    nmp_input(net, @INPUT@, &view);
    memcpy(view.data, frames, sizeof(frames));
    nmp_run(net);
    nmp_output(net, 0, &view);
    const long best = largest(&view);
    if (best != before) {
      print_result(@RESULT@, best, element(&view, best));
    }
    before = best;
  }
}
