#include "runtime/blas_kernels.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace weft::runtime {
namespace {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

VectorUnits UnitsOfThisProcessor() {
  VectorUnits units;
#if defined(__x86_64__)
  units.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  units.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return units;
}

}  // namespace

std::optional<std::string> BetterBlasKernels(std::string_view chosen, const VectorUnits& units) {
  if (chosen != "Prescott") return std::nullopt;
  if (units.avx512) return "SkylakeX";
  if (units.avx2) return "Haswell";
  return std::nullopt;
}

void UseBestBlasKernels(char** argv) {
  if (std::getenv(kVariable) != nullptr) return;
  const auto chosen = reinterpret_cast<const char* (*)()>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  if (chosen == nullptr) return;
  const char* name = chosen();
  const auto better = BetterBlasKernels(name != nullptr ? name : "", UnitsOfThisProcessor());
  if (!better || ::setenv(kVariable, better->c_str(), 1) != 0) return;
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);  // by its name, which ps shows
  if (!error) ::execv(program.c_str(), argv);
  ::unsetenv(kVariable);  // not started anew: slower, but right
}

}  // namespace weft::runtime
