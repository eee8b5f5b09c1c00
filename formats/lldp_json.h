// Which switch port each interface of a host is plugged into, as `lldpcli -f json show neighbors` prints it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::formats {

struct LldpNeighbour {
  std::string interface;   ///< of this host
  std::string chassis;     ///< the switch's name; its id where it announces none
  std::string port;        ///< the switch's port: its description, else its id
};

/// Neighbours in order of interface, switch and port. `interface` may be an object or a list of objects, as lldpcli prints
/// one neighbour or several. Errors: kInvalidArgument naming `source`, line and column of malformed JSON, or the interface and
/// the key that is missing or of another kind.
[[nodiscard]] Result<std::vector<LldpNeighbour>> ParseLldpJson(std::string_view text, std::string_view source);

}  // namespace weft::formats
