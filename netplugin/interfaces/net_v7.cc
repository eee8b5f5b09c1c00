// NCCL 2.19.
#include "netplugin/interfaces/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV7 ncclNetPlugin_v7;
constinit const weft::nccl::NetV7 ncclNetPlugin_v7 =
    weft::net::shims::Table<weft::nccl::NetV7, weft::net::shims::V7>();
}
