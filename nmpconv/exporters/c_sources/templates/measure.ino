/* Says how long a run of each model takes, in microseconds. */
@INCLUDES@

#define RUNS 10

static const struct {
  const char *name;
  const unsigned char *data;
  size_t bytes;
} models[] = {
@MODELS@
};

@ARENA@

void setup() {
  Serial.begin(115200);
}

void loop() {
  for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
    nmp_net *net;
    const nmp_status status =
        nmp_create@SPLIT@(&net, models[m].data, models[m].bytes, @FAST@&arena, sizeof(arena), NULL, NULL);
    Serial.print(models[m].name);
    if (status != NMP_OK) {
      Serial.print(": ");
      Serial.println(nmp_status_text(status));
      continue;
    }
    unsigned long least = 0xffffffff;
    for (int i = 0; i < RUNS; i++) { /* time does not depend on the input */
      const unsigned long start = micros();
      nmp_run(net);
      const unsigned long taken = micros() - start;
      least = taken < least ? taken : least;
    }
    Serial.print(": us ");
    Serial.println(least);
  }
  delay(2000);
}
