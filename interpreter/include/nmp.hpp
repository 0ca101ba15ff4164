/* nmpconv interpreter for C++11 and later: nmp.h with spans and types. No exceptions, no allocation, no standard
 * library, no virtual functions.
 *
 *   static nmp::Model<KWS_ARENA_BYTES> kws;
 *   if (kws.create(kws_data) != NMP_OK) { ... }
 *   nmp::Span<int8_t> x = kws->input<int8_t>();
 *   ...
 *   kws->run();
 *   nmp::Span<const int8_t> y = kws->output<int8_t>();
 */
#ifndef NMP_HPP
#define NMP_HPP

#include "nmp.h"

namespace nmp {
/* In the program's symbols, which interpreter of several a function calls (nmp_names.h of a bundle). */
#ifdef NMP_BUNDLE_NAME
inline namespace NMP_BUNDLE_NAME {
#endif

/* Elements that are somewhere else: a pointer and how many. Indices are not checked. */
template <typename T>
class Span {
 public:
  constexpr Span() : data_(nullptr), size_(0) {}
  constexpr Span(T *data, size_t size) : data_(data), size_(size) {}
  template <size_t n>
  constexpr Span(T (&array)[n]) : data_(array), size_(n) {}

  constexpr T *data() const {
    return data_;
  }
  constexpr size_t size() const {
    return size_;
  }
  constexpr bool empty() const {
    return size_ == 0;
  }
  constexpr T *begin() const {
    return data_;
  }
  constexpr T *end() const {
    return data_ + size_;
  }
  constexpr T &operator[](size_t i) const {
    return data_[i];
  }

 private:
  T *data_;
  size_t size_;
};

/* A net in an arena of the caller, both alive as long as it. Without a net (`if (!net)`) spans are empty. */
class Net {
 public:
  constexpr Net() : net_(nullptr) {}
  Net(const Net &) = delete;
  Net &operator=(const Net &) = delete;
  Net(Net &&other) : net_(other.net_) {
    other.net_ = nullptr;
  }
  Net &operator=(Net &&other) {
    nmp_net *const net = other.net_;
    other.net_ = nullptr;
    net_ = net;
    return *this;
  }

  /* Verifies the file. Both begin at multiples of 16. After an error there is no net. */
  nmp_status create(Span<const unsigned char> model, Span<unsigned char> arena, nmp_fault *fault = nullptr) {
    const nmp_status status = nmp_create(&net_, model.data(), model.size(), arena.data(), arena.size(), nullptr, fault);
    if (status != NMP_OK) {
      net_ = nullptr;
    }
    return status;
  }

  explicit operator bool() const {
    return net_ != nullptr;
  }
  nmp_net *get() const {
    return net_;
  }

  /* Integers of input or output i: T is int8_t or int16_t, as the model has it; else, or without one, empty. */
  template <typename T>
  Span<T> input(uint32_t i = 0) {
    nmp_view view;
    return span<T>(nmp_input(net_, i, &view), view);
  }
  template <typename T>
  Span<const T> output(uint32_t i = 0) const {
    nmp_view view;
    return span<const T>(nmp_output(net_, i, &view), view);
  }

  nmp_status run() {
    return nmp_run(net_);
  }
  nmp_status reset() {
    return nmp_reset(net_);
  } /* states are at their start again */

 private:
  template <typename T>
  static Span<T> span(nmp_status status, const nmp_view &view) {
    if (status != NMP_OK || view.bits != 8 * sizeof(T)) {
      return Span<T>();
    }
    return Span<T>(static_cast<T *>(view.data), view.bytes / sizeof(T));
  }

  nmp_net *net_;
};

/* A net with the arena that it needs. It stays where it is. */
template <size_t arena_bytes>
class Model {
 public:
  constexpr Model() : net_(), arena_{} {} /* a static one costs no code */
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  nmp_status create(Span<const unsigned char> model, nmp_fault *fault = nullptr) {
    return net_.create(model, Span<unsigned char>(arena_), fault);
  }

  explicit operator bool() const {
    return static_cast<bool>(net_);
  }
  Net &operator*() {
    return net_;
  }
  Net *operator->() {
    return &net_;
  }

 private:
  Net net_;
  alignas(16) unsigned char arena_[arena_bytes];
};

#ifdef NMP_BUNDLE_NAME
}
#endif
}  // namespace nmp

#endif
