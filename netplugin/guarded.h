// The plugin's edge: every exported call goes through this, so that no exception leaves the library.
#pragma once

#include <new>

#include "netplugin/abi/nccl_net.h"

namespace weft::net {

/// `Guarded<F>::Call` is F with every exception turned into an NCCL code.
template <auto F>
struct Guarded;

template <typename... Arguments, int (*F)(Arguments...)>
struct Guarded<F> {
  static int Call(Arguments... arguments) noexcept {
    try {
      return F(arguments...);
    } catch (const std::bad_alloc&) {
      return nccl::kSystemError;
    } catch (...) {
      return nccl::kInternalError;
    }
  }
};

}  // namespace weft::net
