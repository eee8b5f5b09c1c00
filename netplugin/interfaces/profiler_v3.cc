// NCCL 2.26.
#include "netplugin/interfaces/profiler_unnamed.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::ProfilerV3 ncclProfiler_v3;
constinit const weft::nccl::ProfilerV3 ncclProfiler_v3 =
    weft::net::shims::UnnamedProfilerTable<weft::nccl::ProfilerDescriptorV3>();
}
