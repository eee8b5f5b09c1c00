// NCCL 2.30 and later.
#include "netplugin/guarded.h"
#include "netplugin/interfaces/environment_plugin.h"

namespace weft::net {
namespace {

int InitV2(uint8_t, uint8_t, uint8_t, const char*, nccl::Logger logger) { return OpenEnvironment(logger); }

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::EnvironmentV2 ncclEnvPlugin_v2;
constinit const weft::nccl::EnvironmentV2 ncclEnvPlugin_v2 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::InitV2>::Call,
    .finalize = &weft::net::Guarded<&weft::net::CloseEnvironment>::Call,
    .get = &weft::net::GetVariable,
};
}
