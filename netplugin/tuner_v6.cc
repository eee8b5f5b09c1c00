// NCCL 2.30 and later: chunk sizes, which are left to NCCL.
#include "netplugin/guarded.h"
#include "netplugin/tuner.h"

namespace weft::net {
namespace {

int InitV6(void** context, uint64_t comm_id, size_t ranks, size_t nodes, nccl::Logger logger, nccl::NvlDomainInfo*,
           nccl::TunerConstants* constants) {
  return OpenTuner(context, comm_id, ranks, nodes, logger, constants);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::TunerV6 ncclTunerPlugin_v6;
constinit const weft::nccl::TunerV6 ncclTunerPlugin_v6 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::InitV6>::Call,
    .get_coll_info = &weft::net::Guarded<&weft::net::TuneCollective>::Call,
    .finalize = &weft::net::Guarded<&weft::net::CloseTuner>::Call,
    .get_chunk_size = nullptr,
};
}
