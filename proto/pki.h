// A site's own certificates, made with OpenSSL's library: an authority, and certificates that say a role (identity.h). Keys are EC
// P-256
// and never leave the folder that they are written to.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "proto/identity.h"

namespace weft::rpc {

/// Makes `folder` (0700) with ca.pem and ca.key (0600), good for ten years.
/// Errors: kAlreadyExists where there is an authority already; kFailedPrecondition naming the file.
[[nodiscard]] Status MakeAuthority(const std::string& folder, const std::string& site);

struct CertificateRequest {
  Role role = Role::kViewer;
  std::string name;                    ///< of an agent: its host
  std::vector<std::string> addresses;  ///< DNS names and IP addresses that it is shown under: needed for a controller; an agent's name
                                       ///< is one already, where it can be
  int days = 365;
};

/// Writes `folder`/ROLE-NAME.pem and .key (0600), in place of what is there; returns the serial number.
/// Errors: kInvalidArgument for a name or number of days; kNotFound without an authority in `folder`.
[[nodiscard]] Result<std::string> IssueCertificate(const std::string& folder, const CertificateRequest& request);

/// Adds the serial number of the certificate in `file` to the list `folder`/revoked.txt; returns it.
/// Errors: kNotFound, kUnauthenticated for a file that is no certificate with a role.
[[nodiscard]] Result<std::string> RevokeCertificate(const std::string& folder, const std::string& file);

}  // namespace weft::rpc
