// NCCL 2.24 and 2.25.
#include "netplugin/interfaces/profiler_unnamed.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::ProfilerV2 ncclProfiler_v2;
constinit const weft::nccl::ProfilerV2 ncclProfiler_v2 =
    weft::net::shims::UnnamedProfilerTable<weft::nccl::ProfilerDescriptorV2>();
}
