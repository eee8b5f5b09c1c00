// Lines to NCCL's own logger, which init hands over. Never on a data path: count and export there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "netplugin/abi/nccl_net.h"

namespace weft::net {

/// May be nullptr: then nothing is logged. Threads: any.
void SetLogger(nccl::Logger logger);

/// One line, cut at 500 bytes, prefixed with "NET/Weft: ". Threads: any.
[[gnu::format(printf, 2, 3)]] void Log(nccl::LogLevel level, const char* format, ...);

/// "HEAD entry, entry": as many lines as it takes, of whole entries; hundreds of entries are counted at the end.
void LogList(nccl::LogLevel level, const std::string& head, const std::vector<std::string>& entries);

/// NAME="VALUE" for a message, a long value cut.
std::string Setting(std::string_view name, std::string_view value);

}  // namespace weft::net
