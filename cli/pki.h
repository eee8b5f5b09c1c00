// `weft pki`: a site's certificates, in a folder of its own. No controller is asked.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct PkiOptions {
  std::string folder = "weft-pki";
  std::string site = "site";            ///< of init: in the authority's name
  std::string role, name;               ///< of issue
  std::vector<std::string> addresses;   ///< of issue
  int days = 365;                       ///< of issue
  std::string file;                     ///< of revoke
};

/// Each returns the process's exit status, prints the files that it made and its own errors to stderr.
int RunPkiInit(const PkiOptions& options);
int RunPkiIssue(const PkiOptions& options);
int RunPkiRevoke(const PkiOptions& options);

}  // namespace weft::cli
