// NCCL 2.28 and 2.29.
#include "netplugin/interfaces/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV11 ncclNetPlugin_v11;
constinit const weft::nccl::NetV11 ncclNetPlugin_v11 =
    weft::net::shims::Table<weft::nccl::NetV11, weft::net::shims::V11>();
}
