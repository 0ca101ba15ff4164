/* nmpconv._nmp: the C API for Python, thin. Memory is numpy's; nmpconv/runtime/interpreter.py keeps it alive and
   aligned. */
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "gil.h"
#include "grid.h"
#include "lock.h"
#include "nmp.h"
#include "pool.h"
#include "shares.h"

namespace nb = nanobind;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Memory = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Results = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Reals = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/* A row a sample: the bytes of integers, or real numbers on the port's grid, which has one exponent. */
using Given = std::variant<Table, Numbers>;
using Wanted = std::variant<Results, Reals>;

namespace {

/* Raised as _nmp.Fault(status, text, what, found, allowed, op, tensor). */
struct Fault {
  nmp_fault fault;
};

void check(nmp_status status, const nmp_fault &fault) {
  if (status != NMP_OK) {
    throw Fault{fault};
  }
}

void check(nmp_status status) {
  check(status, nmp_fault{status, -1, -1, 0, 0, nullptr});
}

/* custom: the address of a table of nmp_custom_op, or 0. */
nmp_options options_of(const std::optional<std::string> &cpu, size_t threads, Pool *pool, uintptr_t custom) {
  return {cpu ? cpu->c_str() : nullptr, threads > 1 ? Pool::parallel : nullptr, pool, threads,
          reinterpret_cast<const nmp_custom_op *>(custom)};
}

/* Any number of Python's threads may call a net: one call at a time touches its memory. */
class Net {
 public:
  /* fast: of its own, for a model with two memories. */
  Net(Bytes model, Memory arena, const std::optional<std::string> &cpu, size_t threads, uintptr_t custom,
      const std::optional<Memory> &fast)
      : model_(model), fast_(fast), arena_(arena), packed_(arena), pool_(std::make_unique<Pool>(threads)) {
    nmp_fault fault;
    const nmp_options options = options_of(cpu, threads, pool_.get(), custom);
    check(nmp_create_split(&net_, model_.data(), model_.size(), fast ? fast->data() : nullptr, fast ? fast->size() : 0,
                           arena_.data(), arena_.size(), &options, &fault),
          fault);
    begin(threads);
  }

  /* Makes a net of another one's file and packed weights. threads: at most the other's; 0: as many. */
  Net(const Net &other, Memory arena, size_t threads)
      : model_(other.model_),
        arena_(arena),
        packed_(other.packed_),
        pool_(std::make_unique<Pool>(threads ? threads : other.threads_)) {
    check(nmp_copy(&net_, other.net_, arena_.data(), arena_.size(), pool_.get()));
    begin(threads ? threads : other.threads_);
  }

  /* Ports that a caller writes and reads: no states, and what they take over only where there is nothing else. */
  const std::vector<uint32_t> &fed() const {
    return fed_;
  }

  const std::vector<uint32_t> &told() const {
    return told_;
  }

  /* Writes input i, which may be a state. */
  void write(uint32_t i, const Bytes &integers) {
    alone([&] { put(i, integers.data(), integers.size()); });
  }

  /* Tensors as they are at one moment. */
  void read(const std::vector<uint32_t> &tensors, const std::vector<Memory> &to) {
    alone([&] {
      for (size_t i = 0; i < tensors.size(); i++) {
        nmp_view view;
        check(nmp_tensor_at(net_, tensors[i], &view));
        copy(to.at(i).data(), view.data, to[i].size(), view.bytes);
      }
    });
  }

  void run_ops(uint32_t first, uint32_t last) {
    alone([&] {
      if (first == 0 && last == shares_->ops()) {
        shares_->run();
      } else {
        check(nmp_run_ops(net_, first, last));
      }
    });
  }

  /* One run after another: row i of each of `inputs`, those of `fed`, makes row i of each of `outputs`, those of
   * `told`. Between two of them another thread may have its turn. Returns false at the first row with numbers that are
   * not finite, which is not run. */
  bool run_each(const std::vector<Given> &inputs, const std::vector<Wanted> &outputs, size_t first, size_t last) {
    check(inputs.size() == fed_.size() && outputs.size() == told_.size() ? NMP_OK : NMP_E_ARGUMENT);
    for (const Given &samples : inputs) {
      check(last <= std::visit([](const auto &rows) { return rows.shape(0); }, samples) ? NMP_OK : NMP_E_ARGUMENT);
    }
    for (const Wanted &results : outputs) {
      check(last <= std::visit([](const auto &rows) { return rows.shape(0); }, results) ? NMP_OK : NMP_E_ARGUMENT);
    }
    for (size_t row = first; row < last; row++) {
      const bool finite = alone([&] {
        for (size_t i = 0; i < inputs.size(); i++) {
          if (!put_row(fed_.at(i), inputs[i], row)) {
            return false;
          }
        }
        shares_->run();
        for (size_t i = 0; i < outputs.size(); i++) {
          get_row(told_.at(i), outputs[i], row);
        }
        return true;
      });
      if (!finite) {
        return false;
      }
    }
    return true;
  }

  void reset() {
    alone([&] { check(nmp_reset(net_)); });
  }

  /* Ops [first, last) that a run takes together now. */
  std::vector<std::pair<uint32_t, uint32_t>> steps() {
    return alone([&] {
      std::vector<std::pair<uint32_t, uint32_t>> found;
      for (uint32_t first = 0, last; first < shares_->ops(); first = last) {
        last = first + nmp_together(net_, first);
        found.emplace_back(first, last);
      }
      return found;
    });
  }

  /* Threads of the step that each op belongs to; what they are after the first runs (shares.h). */
  std::optional<std::vector<size_t>> threads() {
    return alone([&] { return shares_->decided() ? std::optional(shares_->chosen()) : std::nullopt; });
  }

  const char *cpu() const {
    return nmp_cpu(net_);
  }

 private:
  void begin(size_t threads) {
    threads_ = threads;
    shares_ = std::make_unique<Shares<TimedNet>>(TimedNet(net_), threads);
    nmp_view view;
    std::vector<bool> taken;
    for (uint32_t i = 0; nmp_output(net_, i, &view) == NMP_OK; i++) {
      taken.push_back(false);
    }
    for (uint32_t i = 0; nmp_input(net_, i, &view) == NMP_OK; i++) {
      const int32_t output = nmp_state_of(net_, i);
      if (output < 0) {
        fed_.push_back(i);
      } else {
        taken[static_cast<size_t>(output)] = true;
      }
    }
    const bool all = std::find(taken.begin(), taken.end(), false) == taken.end();
    for (uint32_t i = 0; i < taken.size(); i++) {
      if (all || !taken[i]) {
        told_.push_back(i);
      }
    }
  }

  /* Does something with the net while nobody else does. Nobody waits with the GIL, for it or in it (lock.h). */
  template <typename Work>
  auto alone(Work &&work) -> decltype(work()) {
    const Unlocked unlocked;
    const std::lock_guard<Lock> guard(lock_);
    return work();
  }

  static void copy(void *to, const void *from, size_t bytes, size_t wanted) {
    check(bytes == wanted ? NMP_OK : NMP_E_ARGUMENT);
    std::memcpy(to, from, bytes);
  }

  void put(uint32_t i, const uint8_t *integers, size_t bytes) {
    nmp_view view;
    check(nmp_input(net_, i, &view));
    copy(view.data, integers, view.bytes, bytes);
  }

  bool put_row(uint32_t i, const Given &samples, size_t row) {
    if (const Table *bytes = std::get_if<Table>(&samples)) {
      put(i, bytes->data() + row * bytes->shape(1), bytes->shape(1));
      return true;
    }
    const Numbers &numbers = std::get<Numbers>(samples);
    const size_t n = numbers.shape(1);
    nmp_view view;
    check(nmp_input(net_, i, &view));
    check_numbers(view, n);
    const float *x = numbers.data() + row * n;
    const float scale = std::ldexp(1.0f, -view.exponent), lo = static_cast<float>(view.clip_min),
                hi = static_cast<float>(view.clip_max);
    return view.bits == 8 ? grid::integers(n, x, scale, lo, hi, static_cast<int8_t *>(view.data))
                          : grid::integers(n, x, scale, lo, hi, static_cast<int16_t *>(view.data));
  }

  void get_row(uint32_t i, const Wanted &results, size_t row) {
    nmp_view view;
    check(nmp_output(net_, i, &view));
    if (const Results *bytes = std::get_if<Results>(&results)) {
      copy(bytes->data() + row * bytes->shape(1), view.data, bytes->shape(1), view.bytes);
      return;
    }
    const Reals &numbers = std::get<Reals>(results);
    const size_t n = numbers.shape(1);
    check_numbers(view, n);
    const double step = std::ldexp(1.0, view.exponent);
    if (view.bits == 8) {
      grid::reals(n, static_cast<const int8_t *>(view.data), step, numbers.data() + row * n);
    } else {
      grid::reals(n, static_cast<const int16_t *>(view.data), step, numbers.data() + row * n);
    }
  }

  static void check_numbers(const nmp_view &view, size_t count) {
    check(view.bits <= 16 && view.bytes == count * view.bits / 8 ? NMP_OK : NMP_E_ARGUMENT);
  }

  Bytes model_;
  std::optional<Memory> fast_;
  Memory arena_, packed_; /* packed_: the arena with the packed weights, which may be that of another net */
  std::unique_ptr<Pool> pool_;
  Lock lock_; /* of the arena, the pool and shares_ */
  nmp_net *net_ = nullptr;
  size_t threads_ = 1;
  std::unique_ptr<Shares<TimedNet>> shares_;
  std::vector<uint32_t> fed_, told_;
};

nb::dict inspect(Bytes model, const std::optional<std::string> &cpu, size_t threads, uintptr_t custom) {
  const nmp_options options = options_of(cpu, threads, nullptr, custom);
  nmp_info info;
  nmp_fault fault;
  check(nmp_inspect(model.data(), model.size(), &options, &info, &fault), fault);
  nb::dict found;
  found["version"] = nb::make_tuple(info.major, info.minor);
  found["inputs"] = info.inputs;
  found["outputs"] = info.outputs;
  found["ops"] = info.ops;
  found["tensors"] = info.tensors;
  found["arena_bytes"] = info.arena_bytes;
  found["packed_bytes"] = info.packed_bytes;
  found["activation_bytes"] = info.activation_bytes;
  found["scratch_bytes"] = info.scratch_bytes;
  found["work"] = info.work;
  found["fast_bytes"] = info.fast_bytes;
  return found;
}

/* The same on another machine, and what each op is there. */
nb::dict inspect_target(Bytes model, const std::string &target) {
  nmp_info info;
  nmp_fault fault;
  check(nmp_inspect_target(target.c_str(), model.data(), model.size(), &info, nullptr, 0, &fault), fault);
  std::vector<nmp_op_info> ops(info.ops);
  check(nmp_inspect_target(target.c_str(), model.data(), model.size(), &info, ops.data(), ops.size(), &fault), fault);
  nb::list scratch, portable;
  for (const nmp_op_info &op : ops) {
    scratch.append(op.scratch_bytes);
    portable.append(op.portable != 0);
  }
  nb::dict found;
  found["arena_bytes"] = info.arena_bytes;
  found["activation_bytes"] = info.activation_bytes;
  found["fast_bytes"] = info.fast_bytes;
  found["scratch_bytes"] = scratch;
  found["portable"] = portable;
  return found;
}

std::vector<std::string> targets() {
  std::vector<std::string> names;
  while (const char *name = nmp_target(names.size())) {
    names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> cpus() {
  std::vector<std::string> names;
  while (const char *name = nmp_cpu_level(names.size())) {
    names.emplace_back(name);
  }
  return names;
}

}  // namespace

void add_fits(nb::module_ &m);

// Other interpreters of a process share its locks and numpy, which then wait for each other.
static void check_interpreter() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    throw nb::import_error("nmpconv cannot be used in a subinterpreter; use threads or processes");
  }
}

NB_MODULE(_nmp, m) {
  check_interpreter();
  nb::set_leak_warnings(false); /* a daemon thread may hold a net to the end */
  static PyObject *fault_type = PyErr_NewException("nmpconv._nmp.Fault", PyExc_Exception, nullptr);
  m.attr("Fault") = nb::handle(fault_type);
  nb::register_exception_translator([](const std::exception_ptr &p, void *) {
    try {
      std::rethrow_exception(p);
    } catch (const Fault &e) {
      const nmp_fault &f = e.fault;
      nb::tuple args = nb::make_tuple(static_cast<int>(f.status), nmp_status_text(f.status), f.what ? f.what : "",
                                      f.found, f.allowed, f.op, f.tensor);
      PyErr_SetObject(fault_type, args.ptr());
    }
  });
  m.def("inspect", &inspect, nb::arg("model"), nb::arg("cpu").none() = nb::none(), nb::arg("threads") = 1,
        nb::arg("custom") = 0);
  m.def("inspect_target", &inspect_target, nb::arg("model"), nb::arg("target"));
  m.attr("THREADS_MAX") = NMP_THREADS_MAX;
  m.def("targets", &targets);
  m.def("cpus", &cpus);
  m.def("version", &nmp_version);
  add_fits(m);
  nb::class_<Net>(m, "Net")
      .def(nb::init<Bytes, Memory, const std::optional<std::string> &, size_t, uintptr_t,
                    const std::optional<Memory> &>(),
           nb::arg("model"), nb::arg("arena"), nb::arg("cpu").none(), nb::arg("threads") = 1, nb::arg("custom") = 0,
           nb::arg("fast").none() = nb::none())
      .def(nb::init<const Net &, Memory, size_t>(), nb::arg("other"), nb::arg("arena"), nb::arg("threads") = 0)
      .def_prop_ro("fed", &Net::fed)
      .def_prop_ro("told", &Net::told)
      .def("write", &Net::write)
      .def("read", &Net::read)
      .def("run_ops", &Net::run_ops)
      .def("run_each", &Net::run_each, nb::arg("inputs").noconvert(), nb::arg("outputs").noconvert(), nb::arg("first"),
           nb::arg("last"))
      .def("reset", &Net::reset)
      .def("steps", &Net::steps)
      .def("threads", &Net::threads)
      .def_prop_ro("cpu", &Net::cpu);
}
