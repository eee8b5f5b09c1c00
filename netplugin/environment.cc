#include "netplugin/environment.h"

#include <sys/socket.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

namespace weft::net {
namespace {

/// The first of `names` that is set and not empty, or nullptr.
const char* FirstSet(std::initializer_list<const char*> names, const char** which) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value && *value) {
      *which = name;
      return value;
    }
  }
  return nullptr;
}

template <typename Integer>
void ReadNumber(std::initializer_list<const char*> names, Integer least, Integer most, Integer* number,
                std::vector<std::string>* problems) {
  const char* name = nullptr;
  const char* text = FirstSet(names, &name);
  if (!text) return;
  Integer value{};
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error == std::errc() && stop == end && value >= least && value <= most) {
    *number = value;
    return;
  }
  problems->push_back(std::string(name) + "=\"" + text + "\": must be a whole number from " + std::to_string(least) +
                      " to " + std::to_string(most) + "; using " + std::to_string(*number));
}

}  // namespace

Environment ReadEnvironment() {
  Environment environment;
  const char* name = nullptr;
  if (const char* job = FirstSet({"WEFT_JOB_ID"}, &name)) {
    if (std::strlen(job) < 64) {
      environment.job_id = job;
    } else {
      environment.problems.push_back("WEFT_JOB_ID is longer than 63 characters; running without a job id");
    }
  }
  constexpr int kMostRanks = 1 << 24;
  auto& problems = environment.problems;
  ReadNumber({"WEFT_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}, 0, kMostRanks, &environment.rank,
             &problems);
  ReadNumber({"WEFT_WORLD", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}, 1, kMostRanks, &environment.world,
             &problems);
  ReadNumber({"WEFT_CHUNK_BYTES"}, uint32_t{4096}, uint32_t{16 << 20}, &environment.chunk_bytes, &problems);
  ReadNumber({"WEFT_UNSENT_BYTES"}, uint32_t{4096}, uint32_t{1 << 30}, &environment.unsent_bytes, &problems);
  // Set but empty is a value here: no agent.
  if (const char* run_dir = std::getenv("WEFT_RUN_DIR")) environment.run_dir = run_dir;
  if (const char* interfaces = FirstSet({"NCCL_SOCKET_IFNAME"}, &name)) environment.interfaces = interfaces;
  if (const char* family = FirstSet({"NCCL_SOCKET_FAMILY"}, &name)) {
    if (std::string_view(family) == "AF_INET") {
      environment.family = AF_INET;
    } else if (std::string_view(family) == "AF_INET6") {
      environment.family = AF_INET6;
    } else {
      problems.push_back(std::string("NCCL_SOCKET_FAMILY=\"") + family +
                         "\": must be AF_INET or AF_INET6; using both");
    }
  }
  return environment;
}

}  // namespace weft::net
