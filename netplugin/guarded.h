// The plugin's edge: every call of NCCL's goes through this, so that no exception leaves the library.
#pragma once

#include <new>

#include "netplugin/abi/nccl_net.h"

#ifdef _GLIBCXX_TSAN
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#endif

namespace weft::net {

/// NCCL hands a communicator or a request from thread to thread, in an order that ThreadSanitizer does not see, as NCCL is not
/// instrumented. It is told: what a call was given comes after the last call that had it. In other builds nothing.
class HandedOver {
 public:
#ifdef _GLIBCXX_TSAN
  static void Take(void* object) {
    if (object) __tsan_acquire(object);
  }
  static void Give(void* object) {
    if (object) __tsan_release(object);
  }
  static void Give(void** made) {
    if (made) Give(*made);
  }
#endif
  template <typename Other>
  static void Take(Other) {}
  template <typename Other>
  static void Give(Other) {}
};

/// `Guarded<F>::Call` is F with every exception turned into an NCCL code. `kObjects`: F's untyped pointers are addresses of what NCCL
/// hands over (the profiler's are not).
template <auto F, bool kObjects = false>
struct Guarded;

template <typename... Arguments, int (*F)(Arguments...), bool kObjects>
struct Guarded<F, kObjects> {
  static int Call(Arguments... arguments) noexcept {
    try {
      if constexpr (kObjects) (HandedOver::Take(arguments), ...);
      const int done = F(arguments...);
      if constexpr (kObjects) (HandedOver::Give(arguments), ...);
      return done;
    } catch (const std::bad_alloc&) {
      return nccl::kSystemError;
    } catch (...) {
      return nccl::kInternalError;
    }
  }
};

}  // namespace weft::net
