// Who a certificate is, beside being signed by the site's authority: one URI among its alternative names says the role and a name,
// weft://agent/h1, weft://submitter/slurm, weft://operator/ann, weft://viewer/wall. What each may do is the server's to say.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace weft::rpc {

enum class Role { kAgent, kSubmitter, kOperator, kViewer, kController };

struct Identity {
  Role role = Role::kViewer;
  std::string name;    ///< of an agent: its host
  std::string serial;  ///< of the certificate, capital hexadecimal digits: what a list of revoked ones names
};

/// "agent", "submitter", "operator", "viewer", "controller".
std::string_view RoleName(Role role);
/// Errors: kInvalidArgument naming the word and the roles that there are.
[[nodiscard]] Result<Role> ParseRole(std::string_view word);

/// From the text of a certificate. Errors: kUnauthenticated saying what it lacks; one with two such URIs is nobody.
[[nodiscard]] Result<Identity> ParseIdentity(const std::string& pem);
/// From such a URI, without the serial. Errors: kUnauthenticated.
[[nodiscard]] Result<Identity> ParseIdentityUri(std::string_view uri);

}  // namespace weft::rpc
