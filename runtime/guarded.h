// What LibTorch throws stops here. Reaches torch.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "common/result.h"

namespace weft::runtime {

/// Whether LibTorch, whose allocator says so in words alone, or C++ tells that memory ran out.
inline bool SaysNoMemory(std::string_view message) {
  return message.find("allocate memory") != message.npos || message.find("bad_alloc") != message.npos;
}

/// What `body` returns, a Status or Result; an exception as an error with `what` in front: kResourceExhausted when memory runs out,
/// else kInternal.
template <typename Body>
auto Guarded(const char* what, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return Fail(SaysNoMemory(message) ? Code::kResourceExhausted : Code::kInternal, std::string(what) + ": " + message);
  } catch (const std::bad_alloc&) {
    return Fail(Code::kResourceExhausted, std::string(what) + ": out of memory");
  } catch (const std::exception& error) {
    return Fail(Code::kInternal, std::string(what) + ": " + error.what());
  }
}

}  // namespace weft::runtime
