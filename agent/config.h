// What the agent can be told: by flags, and by a YAML file with the same names in snake_case. Flags win.
//
//   version: 1
//   host: node-17
//   run_dir: /run/weft
//   controller: 10.0.0.1:7070
//   sample_interval: 100ms
#pragma once

#include <string>
#include <vector>

#include "agent/user_quotas.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::agent {

struct AgentConfig {
  std::string host;                      ///< this host's name in the cluster; needed
  std::string run_dir;                   ///< holds agent.sock; needed
  std::string controller;                ///< HOST:PORT; needed
  std::string http = "127.0.0.1:0";      ///< ADDR:PORT of /metrics; port 0: any
  std::vector<std::string> interfaces;   ///< data interfaces; empty: all but loopback
  Seconds sample_interval{0.1};          ///< between two looks at the plugins' counters
  Seconds report_interval{0.2};          ///< between two samples to the controller, unless it asks for another
  int probe_candidates = 12;             ///< source ports tried per flow; 0: only those in use
  Seconds reprobe_interval{60};          ///< every flow's paths again so often; 0: only at signs that they changed
  bool qos_apply = false;                ///< `qos: apply`: QoS settings may be set on command; else (`report`) they are only read
  bool move_silent_lanes = true;         ///< `silent_lanes: move`: their bytes are taken from the kernel for the plugin (else `wait`)
  UserLimits quotas;                     ///< of each user of the host
  std::string log_level = "info";        ///< debug, info, warn or error
  std::string tls_certificate;           ///< PEM files, all three or none
  std::string tls_key;
  std::string tls_authority;
  std::string tls_revoked;               ///< list of revoked certificates, for who reads /metrics; empty: none
  std::string viewer_tokens;             ///< file of tokens that may read /metrics; empty: none
};

/// Puts what the YAML file at `path` says over `config`. Errors: kNotFound for the file; kInvalidArgument naming file,
/// line, key, value and what was expected, for unknown and repeated keys as well.
[[nodiscard]] Status LoadConfigFile(const std::string& path, AgentConfig* config);
/// The same from text; `path` is for messages.
[[nodiscard]] Status LoadConfigText(const std::string& text, const std::string& path, AgentConfig* config);

/// Errors: kInvalidArgument naming the setting, its value and what was expected.
[[nodiscard]] Status CheckConfig(const AgentConfig& config);

}  // namespace weft::agent
