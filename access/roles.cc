#include "access/roles.h"

#include <fmt/format.h>

#include <cctype>
#include <sstream>

#include "access/text_file.h"
#include "common/log.h"

namespace weft::access {

Status CheckRole(const rpc::Identity& who, Access access) {
  using rpc::Role;
  const auto refuse = [&](const char* needed) {
    return Fail(Code::kUnauthenticated, fmt::format("{} \"{}\" may not do this: expected {}", rpc::RoleName(who.role), who.name,
                                                    needed));
  };
  switch (access) {
    case Access::kSession: return who.role == Role::kAgent ? Ok() : refuse("an agent");
    case Access::kRead: return who.role != Role::kAgent &&
        who.role != Role::kController ? Ok() : refuse("a viewer, submitter or operator");
    case Access::kSubmit: return who.role == Role::kSubmitter ||
        who.role == Role::kOperator ? Ok() : refuse("a submitter or operator");
    case Access::kOperate: return who.role == Role::kOperator ? Ok() : refuse("an operator");
  }
  return refuse("nobody");
}

std::set<std::string> ParseRevoked(const std::string& text) {
  std::set<std::string> serials;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string serial;
    bool good = true;
    for (const char c : line.substr(0, line.find('#'))) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == ':' || std::isspace(byte) != 0) continue;
      good = good && std::isxdigit(byte) != 0;
      serial += static_cast<char>(std::toupper(byte));
    }
    if (good && !serial.empty()) serials.insert(std::move(serial));
  }
  return serials;
}

Status RevokedCertificates::Load() {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return Ok();
  std::string version = VersionOf(path_);
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(path_));
  serials_ = ParseRevoked(text);
  version_ = std::move(version);
  return Ok();
}

bool RevokedCertificates::Contains(const std::string& serial) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return false;
  if (std::string version = VersionOf(path_); version != version_) {
    version_ = std::move(version);
    if (const auto text = ReadText(path_)) {
      serials_ = ParseRevoked(*text);
      LogInfo("access", "list of revoked certificates read again", {{"certificates", serials_.size()}});
    } else {
      LogError("access", "list of revoked certificates is not readable; those known stay revoked",
               {{"error", text.error().message()}});
    }
  }
  return serials_.contains(serial);
}

}  // namespace weft::access
