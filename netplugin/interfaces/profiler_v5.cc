// NCCL 2.28.
#include "netplugin/interfaces/profiler_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::ProfilerV5 ncclProfiler_v5;
constinit const weft::nccl::ProfilerV5 ncclProfiler_v5 =
    weft::net::shims::ProfilerTable<weft::nccl::ProfilerV5, weft::nccl::ProfilerDescriptorV5,
                                    &weft::net::shims::InitWithId>();
}
