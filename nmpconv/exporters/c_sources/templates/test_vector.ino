/* Runs each model once. Prints whether the outputs are those of its test vector, if it has one. */
@INCLUDES@

@VECTORS@struct Model {
  const char *name;
  const unsigned char *data;
  size_t bytes;
  const unsigned char *const *inputs, *const *outputs; /* of a test vector; NULL: there is none */
};

static const Model models[] = {
@MODELS@
};

@ARENA@

static void run_model(const Model &model) {
  nmp_net *net;
  nmp_view view;
  bool differ = false;
  Serial.println(model.name);
  const nmp_status status = nmp_create@SPLIT@(&net, model.data, model.bytes, @FAST@&arena, sizeof(arena), NULL, NULL);
  if (status != NMP_OK) {
    Serial.println(nmp_status_text(status));
    return;
  }
  for (uint32_t i = 0; nmp_input(net, i, &view) == NMP_OK; i++) {
    if (model.inputs) {
      memcpy(view.data, model.inputs[i], view.bytes);
    } else if (nmp_state_of(net, i) < 0) { /* a state holds what a call leaves to the next one */
      memset(view.data, 0, view.bytes);    /* here go the integers of your input */
    }
  }
  nmp_run(net);
  for (uint32_t i = 0; nmp_output(net, i, &view) == NMP_OK; i++) {
    Serial.print(view.name);
    for (size_t k = 0; k < view.bytes * 8 / view.bits && k < 16; k++) {
      Serial.print(' ');
      Serial.print(view.bits == 8 ? ((const int8_t *)view.data)[k] : ((const int16_t *)view.data)[k]);
    }
    Serial.println();
    differ = differ || (model.outputs && memcmp(view.data, model.outputs[i], view.bytes) != 0);
  }
  if (model.outputs) {
    Serial.println(differ ? "the outputs DIFFER from the test vector" : "the outputs are those of the test vector");
  }
}

void setup() {
  Serial.begin(115200);
}

void loop() {
  for (const Model &model : models) {
    run_model(model);
  }
  delay(2000);
}
