#include "formats/write_file.h"

#include <fmt/format.h>

#include <fstream>

namespace weft::formats {

Status WriteFile(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) return Fail(Code::kUnavailable, fmt::format("{}: cannot be written, expected a writable file in a folder that exists", path));
  return Ok();
}

}  // namespace weft::formats
