// NCCL 2.30 and later: eight members of a virtual device, rail and plane.
#include "netplugin/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV12 ncclNetPlugin_v12;
constinit const weft::nccl::NetV12 ncclNetPlugin_v12 =
    weft::net::shims::WithContext<12, weft::nccl::PropertiesV12>::Table<weft::nccl::NetV12>();
}
