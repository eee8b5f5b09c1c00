// NCCL 2.28 and 2.29: the communicator's id, constants to edit.
#include "netplugin/guarded.h"
#include "netplugin/tuner.h"

namespace weft::net {
namespace {

int InitV5(void** context, uint64_t comm_id, size_t ranks, size_t nodes, nccl::Logger logger, nccl::NvlDomainInfo*,
           nccl::TunerConstants* constants) {
  return OpenTuner(context, comm_id, ranks, nodes, logger, constants);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::TunerV5 ncclTunerPlugin_v5;
constinit const weft::nccl::TunerV5 ncclTunerPlugin_v5 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::InitV5>::Call,
    .get_coll_info = &weft::net::Guarded<&weft::net::TuneCollective>::Call,
    .finalize = &weft::net::Guarded<&weft::net::CloseTuner>::Call,
};
}
