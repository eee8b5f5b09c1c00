#include "runtime/state/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::runtime {
namespace {

constexpr size_t kMostText = 1000;
constexpr int kCodes = 17;

}  // namespace

Status Agree(collectives::Bootstrap* bootstrap, const Status& mine) {
  if (bootstrap == nullptr) return mine;
  std::vector<uint8_t> blob;  // nothing: success
  if (!mine) {
    const std::string text = mine.error().message().substr(0, kMostText);
    blob.push_back(static_cast<uint8_t>(mine.error().code()));
    blob.insert(blob.end(), text.begin(), text.end());
  }
  Result<std::vector<std::vector<uint8_t>>> all = bootstrap->AllGather(blob);
  if (!mine) return mine;
  if (!all) return Fail(all.error());
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const std::vector<uint8_t>& said = (*all)[rank];
    if (said.empty()) continue;
    const Code code = said[0] > 0 && said[0] < kCodes ? static_cast<Code>(said[0]) : Code::kInternal;
    return Fail(code, fmt::format("rank {}: {}", rank, std::string(said.begin() + 1, said.end())));
  }
  return Ok();
}

Result<std::string> OfFirst(collectives::Bootstrap* bootstrap, const std::string& mine) {
  if (bootstrap == nullptr) return mine;
  WEFT_ASSIGN_OR_RETURN(const auto all, bootstrap->AllGather({reinterpret_cast<const uint8_t*>(mine.data()), mine.size()}));
  return std::string(all[0].begin(), all[0].end());
}

}  // namespace weft::runtime
