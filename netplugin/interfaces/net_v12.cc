// NCCL 2.30 and later.
#include "netplugin/interfaces/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV12 ncclNetPlugin_v12;
constinit const weft::nccl::NetV12 ncclNetPlugin_v12 =
    weft::net::shims::Table<weft::nccl::NetV12, weft::net::shims::V12>();
}
