// NCCL 2.30 and later: chunk sizes, which are left to NCCL.
#include "netplugin/guarded.h"
#include "netplugin/interfaces/tuner.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::TunerV6 ncclTunerPlugin_v6;
constinit const weft::nccl::TunerV6 ncclTunerPlugin_v6 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::OpenTuner>::Call,
    .get_coll_info = &weft::net::Guarded<&weft::net::TuneCollective>::Call,
    .finalize = &weft::net::Guarded<&weft::net::CloseTuner>::Call,
    .get_chunk_size = nullptr,
};
}
