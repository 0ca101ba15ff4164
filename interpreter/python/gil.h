/* Python's GIL, released while a scope lasts.
 *
 * Before 3.14 CPython ends a daemon thread that wants the GIL while the process exits by unwinding its stack. Functions
 * of nanobind that allow no exception are on it, so that the program would be aborted. Such a thread sleeps instead, as
 * in 3.14, until the process is gone.
 */
#ifndef NMP_PYTHON_GIL_H
#define NMP_PYTHON_GIL_H

#include <Python.h>

#include <chrono>
#include <thread>

class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}

  ~Unlocked() noexcept(false) { /* else gcc ends the program in place of the cleanup below */
    Sleeper sleeper;
    PyEval_RestoreThread(state_);
    sleeper.is_back = true;
  }

  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;

 private:
  struct Sleeper {
    bool is_back = false;

    ~Sleeper() {
      while (!is_back) {
        std::this_thread::sleep_for(std::chrono::hours(1));
      }
    }
  };

  PyThreadState *state_;
};

#endif
