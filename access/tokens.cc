#include "access/tokens.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "access/text_file.h"
#include "common/log.h"

namespace weft::access {
namespace {

constexpr size_t kLongestHeader = 4096;

/// The bytes of text in base64; empty where it is none.
std::string DecodeBase64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > kLongestHeader) return "";
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0) return "";
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

std::string_view Trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

Tokens::Digest Tokens::DigestOf(const std::string& token) {
  Digest digest{};
  EVP_Digest(token.data(), token.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

Result<std::vector<Tokens::Digest>> Tokens::Read(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(path, Readers::kOwner));
  std::vector<Digest> digests;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string token(Trimmed(std::string_view(line).substr(0, line.find('#'))));
    if (token.empty()) continue;
    const bool plain = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (!plain || token.size() < kShortest || token.size() > kLongest) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}:{}: a token of {} bytes, expected {} to {} printable characters: openssl rand -hex 32", path,
                              number, token.size(), kShortest, kLongest));
    }
    digests.push_back(DigestOf(token));
  }
  if (digests.empty()) return Fail(Code::kInvalidArgument, fmt::format("{}: no token, expected one a line", path));
  return digests;
}

Status Tokens::Load() {
  const std::lock_guard lock(mutex_);
  for (List& list : lists_) {
    if (list.path.empty()) continue;
    list.version = VersionOf(list.path);
    WEFT_ASSIGN_OR_RETURN(list.digests, Read(list.path));
  }
  return Ok();
}

std::optional<rpc::Identity> Tokens::Find(const std::string& token) {
  const Digest shown = DigestOf(token);
  const std::lock_guard lock(mutex_);
  std::optional<rpc::Identity> found;
  for (List& list : lists_) {
    if (list.path.empty()) continue;
    if (std::string version = VersionOf(list.path); version != list.version) {
      list.version = std::move(version);
      const auto digests = Read(list.path);
      if (!digests) LogError("access", "tokens are not readable and let nobody in", {{"error", digests.error().message()}});
      list.digests = digests.value_or(std::vector<Digest>());
      if (digests) LogInfo("access", "tokens read again", {{"role", rpc::RoleName(list.role)}, {"tokens", list.digests.size()}});
    }
    for (size_t i = 0; i < list.digests.size(); ++i) {
      if (CRYPTO_memcmp(shown.data(), list.digests[i].data(), shown.size()) != 0) continue;
      found = rpc::Identity{.role = list.role, .name = fmt::format("token {}", i + 1), .serial = ""};
    }
  }
  return found;
}

std::string TokenOf(const std::string& authorization) {
  std::string_view text(authorization);
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.size() > kLongestHeader) return "";
  std::string scheme(text.substr(0, space));
  for (char& c : scheme) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  text = Trimmed(text.substr(space));
  if (scheme == "bearer") return std::string(text);
  if (scheme != "basic") return "";
  const std::string pair = DecodeBase64(text);
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? "" : pair.substr(colon + 1);
}

}  // namespace weft::access
