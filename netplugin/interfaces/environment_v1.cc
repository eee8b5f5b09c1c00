// NCCL 2.28: no logger.
#include "netplugin/guarded.h"
#include "netplugin/interfaces/environment_plugin.h"

namespace weft::net {
namespace {

int InitV1(uint8_t, uint8_t, uint8_t, const char*) { return OpenEnvironment(nullptr); }

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::EnvironmentV1 ncclEnvPlugin_v1;
constinit const weft::nccl::EnvironmentV1 ncclEnvPlugin_v1 = {
    .name = "Weft",
    .init = &weft::net::Guarded<&weft::net::InitV1>::Call,
    .finalize = &weft::net::Guarded<&weft::net::CloseEnvironment>::Call,
    .get = &weft::net::GetVariable,
};
}
