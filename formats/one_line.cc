#include "formats/one_line.h"

namespace weft::formats {

std::string OneLine(std::string_view text, size_t most) {
  const bool whole = text.size() <= most;
  std::string line(whole ? text : text.substr(0, most - 3));
  for (char& c : line) c = c >= ' ' && c < 0x7f ? c : '?';
  return whole ? line : line + "...";
}

}  // namespace weft::formats
