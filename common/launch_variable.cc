#include "common/launch_variable.h"

#include <algorithm>
#include <iterator>

namespace weft {
namespace {

using Check = bool (*)(std::string_view value);

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

template <size_t kMost>
bool IsNumber(std::string_view value) {
  return !value.empty() && value.size() <= kMost && std::all_of(value.begin(), value.end(), IsDigit);
}

/// Printable ASCII: what a shell or a log makes of the rest is nobody's plan.
bool IsText(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c < 0x7f; });
}

/// Names of hosts and jobs, separated by commas.
bool IsNames(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return IsDigit(c) || IsLetter(c) ||
                                                             std::string_view(".,:_-@+").find(c) != std::string_view::npos; });
}

/// An absolute path that goes nowhere up.
bool IsFolder(std::string_view value) {
  return value.starts_with('/') && value.size() <= 255 && value.find("..") == std::string_view::npos &&
         std::all_of(value.begin(), value.end(), [](char c) { return IsDigit(c) || IsLetter(c) ||
                                                             std::string_view("/._%+-").find(c) != std::string_view::npos; });
}

/// "expandable_segments:True,max_split_size_mb:512".
bool IsOptions(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return IsDigit(c) || IsLetter(c) ||
                                                             std::string_view(":_,.").find(c) != std::string_view::npos; });
}

bool IsSwitch(std::string_view value) { return value == "on" || value == "off"; }

bool IsOurNet(std::string_view value) { return value == "Weft" || value == "weft"; }

struct Entry {
  std::string_view name;
  Check check;
};

constexpr Entry kEntries[] = {
    {"WEFT_JOB_ID", IsText},
    {"WEFT_RUN_DIR", IsFolder},
    {kArgumentsVariable, IsText},
    {"WEFT_COLLECTIVES", IsText},
    {"WEFT_HOST_ORDER", IsNames},
    {"WEFT_RANK_ORDER", IsNames},
    {kReshardVariable, IsSwitch},
    {kReshardEpochVariable, IsNumber<19>},
    {"NCCL_NET", IsOurNet},
    {"NCCL_NET_PLUGIN", IsOurNet},
    {"NCCL_CROSS_NIC", IsNumber<1>},
    {"NCCL_PXN_DISABLE", IsNumber<1>},
    {"NCCL_IB_TC", IsNumber<3>},
    {"NCCL_IB_SL", IsNumber<2>},
    {"CUDA_DEVICE_MAX_CONNECTIONS", IsNumber<2>},
    {"PYTORCH_ALLOC_CONF", IsOptions},
    {"PYTORCH_CUDA_ALLOC_CONF", IsOptions},
};

constexpr std::string_view kFilePrefix = "WEFT_FILE_";

}  // namespace

bool MayLaunchWith(std::string_view name, std::string_view value) {
  if (name.starts_with(kFilePrefix)) {
    name.remove_prefix(kFilePrefix.size());
    const bool good = !name.empty() && std::all_of(name.begin(), name.end(),
                                                   [](char c) { return IsDigit(c) || (c >= 'A' && c <= 'Z') || c == '_'; });
    return good && IsText(value);
  }
  const auto* const found = std::find_if(std::begin(kEntries), std::end(kEntries),
                                         [&](const Entry& entry) { return entry.name == name; });
  return found != std::end(kEntries) && found->check(value);
}

}  // namespace weft
