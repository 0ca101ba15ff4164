/* nmpconv._nmp: the C API for Python, thin. Memory is numpy's; nmpconv/runtime/interpreter.py keeps it alive and
   aligned. */
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "nmp.h"
#include "pool.h"
#include "shares.h"

namespace nb = nanobind;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Memory = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Results = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

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

nb::object array_of(const nmp_view &view, nb::handle owner) {
  size_t shape[NMP_RANK_MAX];
  for (size_t i = 0; i < view.rank; i++) {
    shape[i] = static_cast<size_t>(view.shape[i]);
  }
  nb::dlpack::dtype dtype{static_cast<uint8_t>(nb::dlpack::dtype_code::Int), view.bits, 1};
  return nb::cast(nb::ndarray<nb::numpy>(view.data, view.rank, shape, owner, nullptr, dtype));
}

nmp_options options_of(const std::optional<std::string> &cpu, size_t threads, Pool *pool) {
  return {cpu ? cpu->c_str() : nullptr, threads > 1 ? Pool::parallel : nullptr, pool, threads};
}

class Net {
 public:
  Net(Bytes model, Memory arena, const std::optional<std::string> &cpu, size_t threads)
      : model_(model), arena_(arena), pool_(std::make_unique<Pool>(threads)) {
    nmp_fault fault;
    const nmp_options options = options_of(cpu, threads, pool_.get());
    check(nmp_create(&net_, model_.data(), model_.size(), arena_.data(), arena_.size(), &options, &fault), fault);
    shares_ = std::make_unique<Shares<TimedNet>>(TimedNet(net_), threads);
  }

  using Getter = nmp_status (*)(nmp_net *, uint32_t, nmp_view *);

  template <Getter get>
  static nb::object view(nb::handle_t<Net> self, uint32_t i) {
    nmp_view found;
    check(get(nb::cast<Net &>(self).net_, i, &found));
    return array_of(found, self);
  }

  void run_ops(uint32_t first, uint32_t last) {
    nb::gil_scoped_release unlocked;
    if (first == 0 && last == shares_->ops()) {
      shares_->run();
    } else {
      check(nmp_run_ops(net_, first, last));
    }
  }

  /* One run after another, without states: row i of each of `inputs` makes row i of each of `outputs`. */
  void run_each(const std::vector<Table> &inputs, const std::vector<Results> &outputs, size_t first, size_t last) {
    nb::gil_scoped_release unlocked;
    for (size_t row = first; row < last; row++) {
      for (size_t i = 0; i < inputs.size(); i++) {
        const size_t bytes = inputs[i].shape(1);
        std::memcpy(view_of<nmp_input>(i).data, inputs[i].data() + row * bytes, bytes);
      }
      shares_->run();
      for (size_t i = 0; i < outputs.size(); i++) {
        const size_t bytes = outputs[i].shape(1);
        std::memcpy(outputs[i].data() + row * bytes, view_of<nmp_output>(i).data, bytes);
      }
    }
  }

  void reset() {
    check(nmp_reset(net_));
  }

  uint32_t together(uint32_t op) const {
    return nmp_together(net_, op);
  }

  /* Of the step that each op belongs to; what they are after the first runs (shares.h). */
  std::optional<std::vector<size_t>> threads() const {
    return shares_->decided() ? std::optional(shares_->chosen()) : std::nullopt;
  }

  const char *cpu() const {
    return nmp_cpu(net_);
  }

 private:
  template <Getter get>
  nmp_view view_of(size_t i) {
    nmp_view found;
    check(get(net_, static_cast<uint32_t>(i), &found));
    return found;
  }

  Bytes model_;
  Memory arena_;
  std::unique_ptr<Pool> pool_;
  nmp_net *net_ = nullptr;
  std::unique_ptr<Shares<TimedNet>> shares_;
};

nb::dict inspect(Bytes model, const std::optional<std::string> &cpu, size_t threads) {
  const nmp_options options = options_of(cpu, threads, nullptr);
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

NB_MODULE(_nmp, m) {
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
  m.def("inspect", &inspect, nb::arg("model"), nb::arg("cpu").none() = nb::none(), nb::arg("threads") = 1);
  m.def("inspect_target", &inspect_target, nb::arg("model"), nb::arg("target"));
  m.attr("THREADS_MAX") = NMP_THREADS_MAX;
  m.def("targets", &targets);
  m.def("cpus", &cpus);
  m.def("version", &nmp_version);
  add_fits(m);
  nb::class_<Net>(m, "Net")
      .def(nb::init<Bytes, Memory, const std::optional<std::string> &, size_t>(), nb::arg("model"), nb::arg("arena"),
           nb::arg("cpu").none(), nb::arg("threads") = 1)
      .def("input", &Net::view<nmp_input>)
      .def("output", &Net::view<nmp_output>)
      .def("tensor", &Net::view<nmp_tensor_at>)
      .def("run_ops", &Net::run_ops)
      .def("run_each", &Net::run_each)
      .def("reset", &Net::reset)
      .def("together", &Net::together)
      .def("threads", &Net::threads)
      .def_prop_ro("cpu", &Net::cpu);
}
