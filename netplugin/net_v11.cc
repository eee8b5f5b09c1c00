// NCCL 2.28 and later: contexts, finalize.
#include "netplugin/net_shims.h"

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV11 ncclNetPlugin_v11;
constinit const weft::nccl::NetV11 ncclNetPlugin_v11 =
    weft::net::shims::WithContext<11, weft::nccl::PropertiesV11>::Table<weft::nccl::NetV11>();
}
