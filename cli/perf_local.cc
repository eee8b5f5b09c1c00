#include "cli/perf_local.h"

#include <cstdlib>
#include <string>

#include "collectives/bootstrap.h"
#include "common/exit_code.h"

namespace weft::cli {

void TellPlugin(int rank, int ranks) {
  setenv("WEFT_RANK", std::to_string(rank).c_str(), 1);
  setenv("WEFT_WORLD", std::to_string(ranks).c_str(), 1);
}

RankOutcome RunLocally(const PerfPlan& plan, const std::function<RankOutcome(const PerfPlace&)>& body) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  auto rendezvous = collectives::OpenRendezvous("127.0.0.1:0");
  if (!rendezvous) return {kExitFailed, rendezvous.error().message()};
  return RunRankProcesses(plan.ranks, [&](int rank) {
    TellPlugin(rank, plan.ranks);
    const int listener = rank == 0 ? rendezvous->listener.release() : -1;
    rendezvous->listener.reset();
    return body({.rank = rank, .rendezvous = rendezvous->address, .listener = listener});
  });
}

}  // namespace weft::cli
