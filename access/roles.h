// Who may call what. Every call of the API and every request of HTTP is checked against the role that the caller's certificate or
// token names; without TLS there are no roles, and everybody may call everything.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "common/result.h"
#include "proto/identity.h"

namespace weft::access {

/// What calls are for. An agent's session is an agent's alone; reading is for everybody else.
enum class Access { kSession, kRead, kSubmit, kOperate };

/// Errors: kUnauthenticated naming role, name and what is needed.
[[nodiscard]] Status CheckRole(const rpc::Identity& who, Access access);

/// Serial numbers of certificates that count no more, one a line, '#' begins a comment. The file may be replaced at any time.
/// Threads: any.
class RevokedCertificates {
 public:
  /// `path`: empty: there is none.
  explicit RevokedCertificates(std::string path) : path_(std::move(path)) {}

  /// Errors: kNotFound where the file cannot be read: to be looked at before anything starts.
  [[nodiscard]] Status Load();
  /// Looks at the file again if it has changed. One that has become unreadable leaves what was known.
  bool Contains(const std::string& serial);

 private:
  const std::string path_;
  std::mutex mutex_;  // guards what follows
  std::set<std::string> serials_;
  std::string version_;  // of the file
};

/// The serial numbers in a list's text, in capitals and without colons; what is none is left out.
std::set<std::string> ParseRevoked(const std::string& text);

}  // namespace weft::access
