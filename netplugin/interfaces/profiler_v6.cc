// NCCL 2.29 and later: copy-engine collectives, which are not asked for.
#include "netplugin/interfaces/profiler_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::ProfilerV6 ncclProfiler_v6;
constinit const weft::nccl::ProfilerV6 ncclProfiler_v6 =
    weft::net::shims::ProfilerTable<weft::nccl::ProfilerV6, weft::nccl::ProfilerDescriptorV6,
                                    &weft::net::shims::InitWithId>();
}
