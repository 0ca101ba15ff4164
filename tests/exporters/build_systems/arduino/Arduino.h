/* In place of an Arduino core: its serial line is stdin and stdout, and waits for bytes; loop() is called once. */
#ifndef ARDUINO_H
#define ARDUINO_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct SerialStandIn {
  void begin(unsigned long) {}
  void print(const char *text) { printf("%s", text); }
  void print(char c) { printf("%c", c); }
  void print(int n) { printf("%d", n); }
  void print(long n) { printf("%ld", n); }
  void print(unsigned long n) { printf("%lu", n); }
  template <typename T>
  void println(T x) {
    print(x);
    printf("\n");
  }
  void println() { printf("\n"); }
  int available() {
    const int byte = getchar();
    return byte == EOF ? 0 : (ungetc(byte, stdin), 1);
  }
  int read() { return getchar(); }
  size_t write(const uint8_t *data, size_t bytes) {
    const size_t written = fwrite(data, 1, bytes, stdout);
    fflush(stdout);
    return written;
  }
};
static SerialStandIn Serial;

static inline unsigned long micros() {
  static unsigned long now;
  return now += 7;
}
static inline void delay(unsigned long) {}

void setup();
void loop();
int main() {
  setup();
  loop();
  return 0;
}

#endif
