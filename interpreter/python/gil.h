/* Python's GIL, released while a scope lasts.
 *
 * Before 3.14 CPython ends a daemon thread that wants the GIL while the process exits by pthread_exit. That would
 * unwind functions of nanobind that allow no exception, or, in a wheel, ask its own libc++abi about frames of another
 * unwinder: the program would crash. Such a thread sleeps instead, as in 3.14, until the process is gone. A cleanup
 * of C comes before any frame of C++ is unwound.
 */
#ifndef NMP_PYTHON_GIL_H
#define NMP_PYTHON_GIL_H

#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif
void nmp_take_gil(PyThreadState *state);
#ifdef __cplusplus
}

class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}

  ~Unlocked() {
    nmp_take_gil(state_);
  }

  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;

 private:
  PyThreadState *state_;
};
#endif

#endif
