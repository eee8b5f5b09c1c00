// NCCL 2.24 and 2.25.
#include "netplugin/interfaces/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV9 ncclNetPlugin_v9;
constinit const weft::nccl::NetV9 ncclNetPlugin_v9 =
    weft::net::shims::Table<weft::nccl::NetV9, weft::net::shims::V9>();
}
