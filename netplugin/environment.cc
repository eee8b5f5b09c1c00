#include "netplugin/environment.h"

#include <sys/socket.h>

#include <algorithm>
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

void ReadFamily(const char* variable, int* family, std::vector<std::string>* problems) {
  const char* name = nullptr;
  const char* text = FirstSet({variable}, &name);
  if (!text) return;
  if (std::string_view(text) == "AF_INET") {
    *family = AF_INET;
  } else if (std::string_view(text) == "AF_INET6") {
    *family = AF_INET6;
  } else {
    problems->push_back(std::string(variable) + "=\"" + text + "\": must be AF_INET or AF_INET6; using both");
  }
}

void ReadTransport(Environment* environment) {
  const char* name = nullptr;
  const char* text = FirstSet({"WEFT_TRANSPORT"}, &name);
  if (!text) return;
  const std::string_view choice = text;
  if (choice == "tcp") {
    environment->transport = TransportChoice::kTcp;
  } else if (choice == "rdma") {
    environment->transport = TransportChoice::kRdma;
  } else if (choice != "auto") {
    environment->problems.push_back("WEFT_TRANSPORT=\"" + std::string(choice) +
                                    "\": must be auto, tcp or rdma; using auto");
  }
}

void ReadRdma(RdmaEnvironment* rdma, std::vector<std::string>* problems) {
  const char* name = nullptr;
  int disable = 0, failover = 1;
  ReadNumber({"NCCL_IB_DISABLE"}, 0, 1, &disable, problems);
  rdma->disabled = disable != 0;
  if (const char* devices = FirstSet({"NCCL_IB_HCA"}, &name)) rdma->devices = devices;
  ReadNumber({"WEFT_RDMA_SPLIT_BYTES"}, uint32_t{128}, uint32_t{1 << 30}, &rdma->split_bytes, problems);
  ReadNumber({"WEFT_RDMA_RECOVERY_S"}, 1, 86400, &rdma->recovery_s, problems);
  ReadNumber({"WEFT_RDMA_FAILOVER"}, 0, 1, &failover, problems);
  rdma->failover = failover != 0;
  ReadNumber({"WEFT_RDMA_FAILBACK_S"}, 0, 86400, &rdma->failback_s, problems);
  ReadNumber({"NCCL_IB_QPS_PER_CONNECTION"}, 1, 8, &rdma->queue_pairs, problems);
  ReadNumber({"NCCL_IB_GID_INDEX"}, -1, 255, &rdma->gid_index, problems);
  ReadFamily("NCCL_IB_ADDR_FAMILY", &rdma->family, problems);
  ReadNumber({"NCCL_IB_TC"}, -1, 255, &rdma->traffic_class, problems);
  ReadNumber({"NCCL_IB_FIFO_TC"}, -1, 255, &rdma->control_traffic_class, problems);
  ReadNumber({"NCCL_IB_SL"}, 0, 15, &rdma->service_level, problems);
  ReadNumber({"NCCL_IB_TIMEOUT"}, 1, 31, &rdma->timeout, problems);
  ReadNumber({"NCCL_IB_RETRY_CNT"}, 0, 7, &rdma->retry_count, problems);
  ReadNumber({"NCCL_IB_ADAPTIVE_ROUTING"}, -1, 1, &rdma->adaptive_routing, problems);
  ReadNumber({"NCCL_IB_PCI_RELAXED_ORDERING"}, 0, 2, &rdma->relaxed_ordering, problems);
}

/// The index of the variable's value among `choices`; `standard` if it is not set or none of them.
template <size_t N>
size_t ReadChoice(const char* variable, const char* const (&choices)[N], size_t standard,
                  std::vector<std::string>* problems) {
  const char* name = nullptr;
  const char* text = FirstSet({variable}, &name);
  if (!text) return standard;
  std::string expected;
  for (size_t i = 0; i < N; ++i) {
    if (std::string_view(text) == choices[i]) return i;
    expected += (i == 0 ? "" : i + 1 == N ? " or " : ", ") + std::string(choices[i]);
  }
  problems->push_back(std::string(variable) + "=\"" + text + "\": must be " + expected + "; using " +
                      choices[standard]);
  return standard;
}

void ReadStall(StallEnvironment* stall, std::vector<std::string>* problems) {
  ReadNumber({"WEFT_STALL_SECONDS"}, 0u, 86400u, &stall->after_s, problems);
  ReadNumber({"WEFT_STALL_ACTION_SECONDS"}, 1u, 86400u, &stall->action_after_s, problems);
  stall->action_after_s = std::max(stall->action_after_s, stall->after_s);
  stall->action = static_cast<StallAction>(ReadChoice("WEFT_STALL_ACTION", {"report", "error", "abort"}, 0, problems));
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
  ReadNumber({"WEFT_MAX_RECVS"}, uint32_t{1}, uint32_t{kMaxRecvs}, &environment.max_recvs, &problems);
  // Set but empty is a value here: no agent.
  if (const char* run_dir = std::getenv("WEFT_RUN_DIR")) environment.run_dir = run_dir;
  if (const char* interfaces = FirstSet({"NCCL_SOCKET_IFNAME"}, &name)) environment.interfaces = interfaces;
  ReadFamily("NCCL_SOCKET_FAMILY", &environment.family, &problems);
  ReadTransport(&environment);
  ReadRdma(&environment.rdma, &problems);
  ReadStall(&environment.stall, &problems);
  environment.profile = static_cast<abi::ProfileLevel>(
      ReadChoice("WEFT_PROFILE", {"off", "collectives", "steps", "kernels"}, 0, &problems));
  return environment;
}

}  // namespace weft::net
