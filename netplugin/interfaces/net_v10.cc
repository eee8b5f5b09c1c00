// NCCL 2.26 and 2.27.
#include "netplugin/interfaces/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV10 ncclNetPlugin_v10;
constinit const weft::nccl::NetV10 ncclNetPlugin_v10 =
    weft::net::shims::Table<weft::nccl::NetV10, weft::net::shims::V10>();
}
