#include "cli/sibling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace weft::cli {

Status BecomeSibling(const std::string& name, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / name).string();
  if (error || !std::filesystem::exists(path, error)) {
    return Fail(Code::kNotFound,
                fmt::format("{}: no such program; it is built where LibTorch is installed (deploy/packages.txt)", path));
  }
  std::vector<std::string> texts = arguments;
  texts.insert(texts.begin(), path);
  std::vector<char*> values;
  for (std::string& text : texts) values.push_back(text.data());
  values.push_back(nullptr);
  execv(path.c_str(), values.data());
  return Fail(Code::kUnavailable, ErrnoError(path, errno).message());
}

}  // namespace weft::cli
