#include "cli/pki.h"

#include <fmt/format.h>

#include "common/exit_code.h"
#include "proto/pki.h"

namespace weft::cli {
namespace {

int Complain(const Error& error) {
  fmt::print(stderr, "weft: {}\n", error.message());
  return ExitCodeOf(error);
}

}  // namespace

int RunPkiInit(const PkiOptions& options) {
  if (const Status made = rpc::MakeAuthority(options.folder, options.site); !made) return Complain(made.error());
  fmt::print("{0}/ca.pem\n{0}/ca.key\n", options.folder);
  return kExitDone;
}

int RunPkiIssue(const PkiOptions& options) {
  const auto role = rpc::ParseRole(options.role);
  if (!role) return Complain(role.error());
  if (*role == rpc::Role::kController && options.addresses.empty()) {
    return Complain(Error(Code::kInvalidArgument,
                          "a controller's certificate: expected --address with the names that agents and tools call it by"));
  }
  const auto serial = rpc::IssueCertificate(options.folder,
      {.role = *role, .name = options.name, .addresses = options.addresses, .days = options.days});
  if (!serial) return Complain(serial.error());
  fmt::print("{0}/{1}-{2}.pem\n{0}/{1}-{2}.key\n", options.folder, options.role, options.name);
  return kExitDone;
}

int RunPkiRevoke(const PkiOptions& options) {
  const auto serial = rpc::RevokeCertificate(options.folder, options.file);
  if (!serial) return Complain(serial.error());
  fmt::print("{} is in {}/revoked.txt\n", *serial, options.folder);
  return kExitDone;
}

}  // namespace weft::cli
