// Lines to NCCL's own logger, which init hands over. Never on a data path: count and export there.
#pragma once

#include "netplugin/abi/nccl_net.h"

namespace weft::net {

/// May be nullptr: then nothing is logged. Threads: any.
void SetLogger(nccl::Logger logger);

/// One line, cut at 500 bytes, prefixed with "NET/Weft: ". Threads: any.
[[gnu::format(printf, 2, 3)]] void Log(nccl::LogLevel level, const char* format, ...);

}  // namespace weft::net
