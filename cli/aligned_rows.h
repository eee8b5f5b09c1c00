// Tables for people: columns as wide as they must be.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

using AlignedRow = std::vector<std::string>;

/// One line per row, indented; the first column to the left, the others to the right. Rows may differ in length.
std::string AlignedText(const std::vector<AlignedRow>& rows);

}  // namespace weft::cli
