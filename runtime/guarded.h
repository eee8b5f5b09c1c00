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

/// What `body` returns, a Status or Result; an exception as an error with `what` in front: kResourceExhausted when memory runs out,
/// else kInternal.
template <typename Body>
auto Guarded(const char* what, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& error) {
    // LibTorch's allocator says so in words alone.
    const std::string_view message = error.what_without_backtrace();
    const bool memory = message.find("allocate memory") != std::string_view::npos;
    return Fail(memory ? Code::kResourceExhausted : Code::kInternal, std::string(what) + ": " + std::string(message));
  } catch (const std::bad_alloc&) {
    return Fail(Code::kResourceExhausted, std::string(what) + ": out of memory");
  } catch (const std::exception& error) {
    return Fail(Code::kInternal, std::string(what) + ": " + error.what());
  }
}

}  // namespace weft::runtime
