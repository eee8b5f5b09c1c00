// NCCL 2.22 and 2.23: nothing of registered buffers.
#include "netplugin/guarded.h"
#include "netplugin/interfaces/tuner.h"

namespace weft::net {
namespace {

int InitV3(size_t ranks, size_t nodes, nccl::Logger logger, void** context) {
  return OpenTuner(context, 0, ranks, nodes, logger, nullptr, nullptr);
}

int TuneV3(void* context, int function, size_t bytes, int pipelined_operations, float** costs, int algorithms, int protocols,
           int* channels) {
  return TuneCollective(context, function, bytes, pipelined_operations, costs, algorithms, protocols, 0, channels);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::TunerV3 ncclTunerPlugin_v3;
constinit const weft::nccl::TunerV3 ncclTunerPlugin_v3 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::InitV3>::Call,
    .get_coll_info = &weft::net::Guarded<&weft::net::TuneV3>::Call,
    .destroy = &weft::net::Guarded<&weft::net::CloseTuner>::Call,
};
}
