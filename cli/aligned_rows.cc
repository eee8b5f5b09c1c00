#include "cli/aligned_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::cli {

std::string AlignedText(const std::vector<AlignedRow>& rows) {
  std::vector<size_t> widths;
  for (const AlignedRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const AlignedRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? fmt::format("  {:<{}}", row[i], widths[i]) : fmt::format("   {:>{}}", row[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace weft::cli
