// NCCL 2.27: the type of an event is a byte, the communicator is named by its hash.
#include "netplugin/interfaces/profiler_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::ProfilerV4 ncclProfiler_v4;
constinit const weft::nccl::ProfilerV4 ncclProfiler_v4 =
    weft::net::shims::ProfilerTable<weft::nccl::ProfilerV4, weft::nccl::ProfilerDescriptorV4,
                                    &weft::net::shims::InitWithHash>();
}
