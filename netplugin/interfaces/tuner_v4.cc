// NCCL 2.24 to 2.27: no identity, no constants.
#include "netplugin/guarded.h"
#include "netplugin/interfaces/tuner.h"

namespace weft::net {
namespace {

int InitV4(size_t ranks, size_t nodes, nccl::Logger logger, void** context) {
  return OpenTuner(context, 0, ranks, nodes, logger, nullptr, nullptr);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::TunerV4 ncclTunerPlugin_v4;
constinit const weft::nccl::TunerV4 ncclTunerPlugin_v4 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::InitV4>::Call,
    .get_coll_info = &weft::net::Guarded<&weft::net::TuneCollective>::Call,
    .destroy = &weft::net::Guarded<&weft::net::CloseTuner>::Call,
};
}
