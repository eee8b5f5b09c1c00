// The collectives of NCCL's kernels, one block (channel) at a time.
#pragma once

#include <vector>

#include "tests/nccl/kernels/primitives.h"

namespace weft::nccl_test {

/// What a kernel runs, decoded from NCCL's number of the device function.
struct Function {
  int collective = 0;  ///< ncclFunc_t
  ncclDevRedOp_t op = ncclDevSum;
  ncclDataType_t type = ncclInt8;
  int algorithm = NCCL_ALGO_RING, protocol = NCCL_PROTO_SIMPLE;
};

/// Runs one collective's part of this channel. Returns when it is done or the communicator was aborted.
/// Errors: aborts the process with a message where the function is not one of those that a CPU is asked to run.
void RunCollective(const Block& block, const Function& function, ncclDevWorkColl work);

/// Runs a batch of sends and receives, all at once as a GPU's warps do.
void RunSendReceive(const Block& block, const std::vector<ncclDevWorkP2p>& works);

/// PAT: all-gather and reduce-scatter along hypercube dimensions.
void RunPat(const Block& block, const Function& function, const ncclDevWorkColl& work);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
/// Broadcasts from several roots, in turns around one ring.
void RunBroadcasts(const Block& block, const Function& function, std::vector<ncclDevWorkBcast> works);
#endif

/// A channel's part of a collective, in elements.
struct Part {
  ptrdiff_t total = 0;            ///< of the whole collective
  ptrdiff_t offset = 0, count = 0, chunk = 0;
};
Part PartOf(const Block& block, const Function& function, const ncclDevWorkColl& work, size_t element);

}  // namespace weft::nccl_test
