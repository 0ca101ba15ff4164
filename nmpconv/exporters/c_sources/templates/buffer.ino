/* Hands a buffer to each model, as a camera or a microphone fills it, and prints which output is the largest. */
#include <string.h>

@INCLUDES@

@BUFFERS@

@ARENA@

@HELPERS@
static void print_result(const char *name, long best, long integer) {
  Serial.print(name);
  if (best < 0) {
    Serial.println(" was refused");
    return;
  }
  Serial.print(": output ");
  Serial.print(best);
  Serial.print(" is the largest, ");
  Serial.println(integer);
}

@FUNCTIONS@
void setup() {
  Serial.begin(115200);
}

void loop() { /* fill the buffers here */
@RUNS@
  delay(2000);
}
