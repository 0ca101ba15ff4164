#include "gil.h"

#ifdef _WIN32 /* ends threads without unwinding */

void nmp_take_gil(PyThreadState *state) {
  PyEval_RestoreThread(state);
}

#else
#include <pthread.h>
#include <unistd.h>

static void stay(void *unused) {
  (void)unused;
  for (;;) {
    pause();
  }
}

void nmp_take_gil(PyThreadState *state) {
  pthread_cleanup_push(stay, NULL);
  PyEval_RestoreThread(state);
  pthread_cleanup_pop(0);
}

#endif
