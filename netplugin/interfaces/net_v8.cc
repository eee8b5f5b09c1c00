// NCCL 2.20 to 2.23.
#include "netplugin/interfaces/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV8 ncclNetPlugin_v8;
constinit const weft::nccl::NetV8 ncclNetPlugin_v8 =
    weft::net::shims::Table<weft::nccl::NetV8, weft::net::shims::V8>();
}
