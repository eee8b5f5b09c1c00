// The tuner face on one implementation: which algorithm, protocol and how many channels NCCL shall use for a collective.
//
// The table is read from the launch environment once per process (abi/collective_table.h) and never again, and an answer
// depends on it, on what NCCL passes in and on nothing else: no clock, no load, no segment, no rank. Ranks with the same
// environment therefore answer alike, which is what keeps them from hanging in each other's collectives. Each answer is
// folded into a digest that the agent can compare between ranks.
//
// Only entries that NCCL offers (cost not negative) are chosen; the chosen one's cost becomes 0 and nothing else in the
// cost table is touched, so the library's own choice stays where no entry fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "netplugin/abi/collective_table.h"
#include "netplugin/abi/nccl_tuner.h"
#include "netplugin/abi/observations.h"

namespace weft::net {

/// What the network between nodes gives, against what NCCL's constants assume (a perfect one).
struct FabricFactors {
  double bandwidth = 1;   ///< share of the NICs' rate that is there, 0.01 to 1
  double latency_us = 0;  ///< on top of NCCL's own, 0 to 10000
};

/// The launch environment as the tuner reads it.
struct TunerPlan {
  abi::CollectiveTable table;
  uint64_t digest = 0;          ///< FNV-1a of the table's text; 0 without a table
  FabricFactors fabric;
  bool user_algorithm = false;  ///< NCCL_ALGO is set: NCCL offers what the user wants, and nothing is chosen here
  bool user_protocol = false;   ///< NCCL_PROTO likewise
  std::vector<std::string> problems;  ///< values that were refused, one line each

  bool overridden() const { return user_algorithm || user_protocol; }
};

/// Reads WEFT_COLLECTIVES, WEFT_FABRIC, NCCL_ALGO and NCCL_PROTO. A table with a mistake is refused whole.
TunerPlan ReadTunerPlan();

/// The cost table of one call, [algorithms][protocols], as NCCL passes it.
struct CostTable {
  float* costs;
  int algorithms;
  int protocols;
};

/// One communicator's tuner. Threads: those that use the communicator, one at a time.
class Tuner {
 public:
  /// Requires: `plan` outlives the tuner. `slot` may be nullptr.
  Tuner(const TunerPlan& plan, size_t ranks, size_t nodes, abi::CommunicatorSlot* slot);

  /// Edits `table` and `*channels` (which may be nullptr) if an entry fits; never fails.
  void Choose(int function, size_t bytes, const CostTable& table, int* channels);

  abi::CommunicatorSlot* slot() const { return slot_; }

 private:
  const abi::CollectiveEntry* Entry(int function, size_t bytes) const;
  void Record(bool decided, int function, size_t bytes, int algorithm, int protocol, uint32_t channels);

  const TunerPlan& plan_;
  const uint32_t ranks_, nodes_;
  abi::CommunicatorSlot* const slot_;
  uint64_t digest_ = 0;
};

/// Makes the model of NCCL see a slower fabric: latencies between nodes grow, bandwidths for two and more nodes shrink.
/// A communicator on one node keeps its constants: the rows for one node are not touched, and it uses no network.
void AdaptConstants(const FabricFactors& fabric, nccl::TunerConstants* constants);

/// The faces, for the tables of tuner_v3.cc to tuner_v6.cc, in the shape of version 5. `context` is a Tuner.
/// `constants` may be nullptr.
int OpenTuner(void** context, uint64_t comm_id, size_t ranks, size_t nodes, nccl::Logger logger,
              nccl::NvlDomainInfo* domains, nccl::TunerConstants* constants);
int TuneCollective(void* context, int function, size_t bytes, int pipelined_operations, float** costs, int algorithms,
                   int protocols, int registered, int* channels);
int CloseTuner(void* context);

/// What version 2 says of a communicator.
struct OfferedV2 {
  bool collnet = false, nvls = false;
};
/// Version 2: writes `*algorithm`, `*protocol` and `*channels` where an entry names a combination that NCCL 2.21 has for certain
/// with those flags. LL128 is none of them: whether the links carry it is not said, and where they don't data would be wrong.
int TuneWithoutCosts(void* context, int function, size_t bytes, const OfferedV2& offered, int* algorithm, int* protocol,
                     int* channels);

}  // namespace weft::net
