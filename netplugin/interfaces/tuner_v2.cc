// NCCL 2.21: no costs, the answer is an algorithm and a protocol, and NCCL does not say which it has.
#include "netplugin/guarded.h"
#include "netplugin/interfaces/tuner.h"

namespace weft::net {
namespace {

int InitV2(size_t ranks, size_t nodes, nccl::Logger logger, void** context) {
  return OpenTuner(context, 0, ranks, nodes, logger, nullptr, nullptr);
}

int TuneV2(void* context, int function, size_t bytes, int collnet, int nvls, int, int* algorithm, int* protocol,
           int* channels) {
  return TuneWithoutCosts(context, function, bytes, {.collnet = collnet != 0, .nvls = nvls != 0}, algorithm, protocol,
                          channels);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::TunerV2 ncclTunerPlugin_v2;
constinit const weft::nccl::TunerV2 ncclTunerPlugin_v2 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::InitV2>::Call,
    .get_coll_info = &weft::net::Guarded<&weft::net::TuneV2>::Call,
    .destroy = &weft::net::Guarded<&weft::net::CloseTuner>::Call,
};
}
