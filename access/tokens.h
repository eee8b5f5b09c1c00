// Tokens: words that stand for a certificate where somebody cannot show one, a browser or a script. Files name them, one for each
// role; each line is a token, '#' begins a comment. Only their digests are kept, and comparing one takes as long whatever it is.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "proto/identity.h"

namespace weft::access {

/// Paths; empty: nobody has this role by a token.
struct TokenFiles {
  std::string viewer, operators;

  bool empty() const { return viewer.empty() && operators.empty(); }
};

/// Threads: any.
class Tokens {
 public:
  static constexpr size_t kShortest = 32, kLongest = 256;  ///< of a token; 32 characters of `openssl rand -hex 16` are 128 bits

  explicit Tokens(TokenFiles files) : lists_{List{rpc::Role::kViewer, files.viewer}, List{rpc::Role::kOperator, files.operators}} {}

  /// Errors: as ReadText for a file that only its owner may read; kInvalidArgument naming file and line for a token that is too
  /// short or too long, or holds anything but printable ASCII, and for a file without one.
  [[nodiscard]] Status Load();
  /// Whose `token` is: its role, and as name its place, "token 1" for the first; empty if it is nobody's. Files are looked at again
  /// when they have changed: one that cannot be read any more, or that others may read, names nobody.
  std::optional<rpc::Identity> Find(const std::string& token);

 private:
  using Digest = std::array<uint8_t, 32>;
  struct List {
    rpc::Role role;
    std::string path;
    std::string version;
    std::vector<Digest> digests;
  };
  static Result<std::vector<Digest>> Read(const std::string& path);
  static Digest DigestOf(const std::string& token);

  std::mutex mutex_;  // guards what follows
  std::array<List, 2> lists_;
};

/// The token in the text of a header `Authorization`: "Bearer TOKEN", or the password of "Basic ..." as browsers send it; empty if
/// there is none.
std::string TokenOf(const std::string& authorization);

}  // namespace weft::access
