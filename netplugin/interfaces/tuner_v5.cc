// NCCL 2.28 and 2.29: the communicator's id, constants to edit.
#include "netplugin/guarded.h"
#include "netplugin/interfaces/tuner.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::TunerV5 ncclTunerPlugin_v5;
constinit const weft::nccl::TunerV5 ncclTunerPlugin_v5 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::OpenTuner>::Call,
    .get_coll_info = &weft::net::Guarded<&weft::net::TuneCollective>::Call,
    .finalize = &weft::net::Guarded<&weft::net::CloseTuner>::Call,
};
}
