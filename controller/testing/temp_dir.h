// A folder that goes with its owner.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace weft::controller::testing {

class TempDir {
 public:
  TempDir() : path_((std::filesystem::temp_directory_path() / "weft-controller-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weft::controller::testing
