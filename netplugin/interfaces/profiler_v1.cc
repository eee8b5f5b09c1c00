// NCCL 2.23: numbers where later versions have names.
#include "netplugin/interfaces/profiler_unnamed.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::ProfilerV1 ncclProfiler_v1;
constinit const weft::nccl::ProfilerV1 ncclProfiler_v1 =
    weft::net::shims::UnnamedProfilerTable<weft::nccl::ProfilerDescriptorV1>();
}
